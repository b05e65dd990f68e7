// Tests that a save that ends at any moment leaves the earlier model or the new one, whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "common/saved_model/saved_model.h"
#include "tests/common/base/hooked_env.h"
#include "tests/common/saved_model/small_saves.h"

namespace sluice {
namespace {

const std::string kFirst = "000000000000001d", kSecond = "00000000000002e2",
                  kThird = "00000000abcdef3f";

class SaveCrashTest : public ::testing::Test {
 protected:
  SaveCrashTest() {
    std::string pattern = ::testing::TempDir() + "/save_crash_test.XXXXXX";
    root_ = ::mkdtemp(pattern.data());
    dir_ = root_ + "/out/model";
    env_.before = [this](const std::string& what, const std::string&) {
      if (changes_left_-- > 0) return absl::OkStatus();
      died_at_.insert(what);
      changes_left_ = 0;
      return absl::InternalError("the machine crashed");
    };
  }
  ~SaveCrashTest() override { std::filesystem::remove_all(root_); }

  absl::Status Save(Env* env, const std::string& save_id, uint64_t number) {
    return SaveSmallModel(dir_, tables_, number, save_id, env);
  }
  std::string Loaded() { return LoadedModel(dir_, Env::Real()); }

  std::string root_, dir_;
  const TableLayouts tables_ = SmallTables();
  HookedEnv env_;
  int changes_left_ = 0;  // changes of the disk until the crash
  std::set<std::string> died_at_;
};

TEST_F(SaveCrashTest, ACrashBetweenAnyTwoStepsLeavesTheOldOrTheNewModel) {
  for (const bool tears : {false, true}) {
    env_.tears_writes = tears;
    std::set<std::string> loaded;
    bool finished = false;
    for (int changes = 0; !finished; ++changes) {
      SCOPED_TRACE(changes);
      std::filesystem::remove_all(root_ + "/out");
      ASSERT_TRUE(Save(Env::Real(), kFirst, 1).ok());
      ASSERT_EQ(Loaded(), "job1");
      changes_left_ = changes;
      const absl::Status saved = Save(&env_, kSecond, 2);
      finished = changes_left_ > 0;
      const std::string now = Loaded();
      loaded.insert(now);
      // A save that reported success must be there. One that failed may be there or not.
      if (saved.ok()) {
        EXPECT_EQ(now, "job2");
      }
      // The next save cleans up.
      ASSERT_TRUE(Save(Env::Real(), kThird, 3).ok());
      EXPECT_EQ(Loaded(), "job3");
      EXPECT_THAT(*Env::Real()->List(dir_),
                  ::testing::ElementsAre("MANIFEST", "bias-0." + kThird + ".shard",
                                         "embedding-0." + kThird + ".shard",
                                         "embedding-1." + kThird + ".shard", "job.textproto"));
    }
    EXPECT_THAT(loaded, ::testing::ElementsAre("job1", "job2"));
    EXPECT_THAT(died_at_, ::testing::IsSupersetOf({"mkdir", "remove", "rename", "write"}));
  }
}

TEST_F(SaveCrashTest, DiscardModelRemovesOnlyTheUncommittedSave) {
  ASSERT_TRUE(Save(Env::Real(), kFirst, 1).ok());
  const auto before = *Env::Real()->List(dir_);
  env_.before = [](const std::string& what, const std::string& path) {
    return what == "rename" && path.find("MANIFEST") != std::string::npos
               ? absl::ResourceExhaustedError("disk full")
               : absl::OkStatus();
  };
  EXPECT_EQ(Save(&env_, kSecond, 2).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Loaded(), "job1");
  EXPECT_GT(Env::Real()->List(dir_)->size(), before.size());
  DiscardModel(dir_, Env::Real(), kSecond);
  EXPECT_EQ(*Env::Real()->List(dir_), before);
  EXPECT_EQ(Loaded(), "job1");
}

TEST_F(SaveCrashTest, ForeignFilesStayWhateverTheirNames) {
  ASSERT_TRUE(Save(Env::Real(), kFirst, 1).ok());
  for (const char* name : {"mine.shard", "MANIFEST.old", "job.old.textproto", "x.unfinished"})
    ASSERT_TRUE(Env::Real()->WriteFile(dir_ + "/" + name, {"mine"}).ok());
  ASSERT_TRUE(Save(Env::Real(), kSecond, 2).ok());
  EXPECT_THAT(
      *Env::Real()->List(dir_),
      ::testing::IsSupersetOf({"mine.shard", "MANIFEST.old", "job.old.textproto", "x.unfinished"}));
  EXPECT_EQ(Loaded(), "job2");
}

TEST_F(SaveCrashTest, CopiesThatPeopleMakeStay) {
  ASSERT_TRUE(Save(Env::Real(), kFirst, 1).ok());
  const std::string shard = "bias-0." + kFirst + ".shard", job = "job.textproto";
  const std::pair<std::string, std::string> copies[] = {{"MANIFEST", "MANIFEST.old"},
                                                        {"MANIFEST", "MANIFEST." + kFirst + ".old"},
                                                        {"MANIFEST", "MANIFEST.bak.unfinished"},
                                                        {"MANIFEST", "MANIFEST-2.7.7.unfinished"},
                                                        {job, "job.old.textproto"},
                                                        {job, "job.bak_textproto"},
                                                        {job, "job.1.textproto.unfinished"},
                                                        {job, "job." + kFirst + ".old.textproto"},
                                                        {shard, "bias-0.old.shard"},
                                                        {shard, "bias-0." + kFirst + ".copy.shard"},
                                                        {shard, "bias.shard"},
                                                        {shard, shard + ".unfinished"}};
  for (const auto& [from, to] : copies)
    std::filesystem::copy_file(dir_ + "/" + from, dir_ + "/" + to);
  ASSERT_TRUE(Save(Env::Real(), kSecond, 2).ok());
  for (const auto& [from, to] : copies) EXPECT_TRUE(Env::Real()->Exists(dir_ + "/" + to)) << to;
  EXPECT_FALSE(Env::Real()->Exists(dir_ + "/" + shard));
  EXPECT_EQ(Loaded(), "job2");
}

TEST_F(SaveCrashTest, AJobFileOfAnotherSaveIsDataLoss) {
  ASSERT_TRUE(Save(Env::Real(), kFirst, 1).ok());
  ASSERT_TRUE(Env::Real()->WriteFile(dir_ + "/job.textproto", {"name: \"other\"\n"}).ok());
  EXPECT_EQ(ReadModelJob(dir_, Env::Real()).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(SaveCrashTest, ASaveIdThatCouldLeadElsewhereIsRefused) {
  for (const char* id : {"../x", "5a", "000000000000005A", "00000000000000-1", "0000000000000/5a",
                         "0000000000000.5a", "0000000000000005a"})
    EXPECT_EQ(Save(Env::Real(), id, 1).code(), absl::StatusCode::kInvalidArgument) << id;
  EXPECT_FALSE(std::filesystem::exists(dir_));
}

}  // namespace
}  // namespace sluice
