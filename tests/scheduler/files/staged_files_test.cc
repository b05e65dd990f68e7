#include "scheduler/files/staged_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "tests/common/places/fake_store_env.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::Key;

class StagedFilesTest : public ::testing::Test {
 protected:
  StagedFilesTest() {
    std::string pattern = ::testing::TempDir() + "/staged_files_test.XXXXXX";
    dir_ = ::mkdtemp(pattern.data());
  }
  ~StagedFilesTest() override { std::filesystem::remove_all(dir_); }

  std::string dir_;
  FakeStoreEnv env_;
};

TEST_F(StagedFilesTest, CurvesAreCopiedHereAndBackWholeWhenTheyHaveChanged) {
  env_.store.Put("b/out/events.out.tfevents.1", "one");
  env_.store.Put("b/out/rerun-1/events.out.tfevents.2", "two");
  env_.store.Put("b/out/curves.jsonl", "thin");
  env_.store.Put("b/out/result.json", "other");
  auto staged = StagedFiles::Begin(env_.get(), dir_ + "/job");
  ASSERT_TRUE(staged.ok()) << staged.status();
  const auto here = (*staged)->StageCurves("s3://b/out");
  ASSERT_TRUE(here.ok()) << here.status();
  EXPECT_THAT(*Env::Real()->List(*here),
              ElementsAre("curves.jsonl", "events.out.tfevents.1", "rerun-1"));
  ASSERT_TRUE((*staged)->Put().ok());
  for (const HttpRequest& request : env_.transport.requests()) EXPECT_NE(request.method, "PUT");
  // As a curve that is complete: its file takes the place of the earlier one.
  ASSERT_TRUE(
      Env::Real()->WriteFile(*here + "/rerun-1/events.out.tfevents.2", {"two", "three"}).ok());
  ASSERT_TRUE(Env::Real()->WriteFile(*here + "/curves.jsonl", {"thinner"}).ok());
  ASSERT_TRUE((*staged)->Put().ok());
  EXPECT_EQ(env_.store.objects()["b/out/rerun-1/events.out.tfevents.2"], "twothree");
  EXPECT_EQ(env_.store.objects()["b/out/curves.jsonl"], "thinner");
  ASSERT_TRUE(
      Env::Real()
          ->RenameFile(*here + "/rerun-1/events.out.tfevents.2", *here + "/events.out.tfevents.2")
          .ok());
  ASSERT_TRUE(Env::Real()->RemoveFile(*here + "/events.out.tfevents.1").ok());
  ASSERT_TRUE(Env::Real()->RemoveDir(*here + "/rerun-1").ok());
  ASSERT_TRUE((*staged)->Put().ok());
  EXPECT_THAT(env_.store.objects(),
              ElementsAre(Key("b/out/curves.jsonl"), Key("b/out/events.out.tfevents.2"),
                          Key("b/out/result.json")));
}

TEST_F(StagedFilesTest, OtherFilesAreNewAndNothingIsLeftHere) {
  auto staged = StagedFiles::Begin(env_.get(), dir_ + "/job");
  const std::string trace = (*staged)->StageFile("s3://b/trace.json");
  ASSERT_TRUE((*staged)->Put().ok()) << "it is not there yet";
  ASSERT_TRUE(Env::Real()->WriteFile(trace, {"x"}).ok());
  ASSERT_TRUE((*staged)->Put().ok());
  EXPECT_EQ(env_.store.objects()["b/trace.json"], "x");
  staged->reset();
  EXPECT_FALSE(Env::Real()->Exists(dir_ + "/job"));
}

}  // namespace
}  // namespace sluice
