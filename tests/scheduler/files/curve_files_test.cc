#include "scheduler/files/curve_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace sluice {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::UnorderedElementsAreArray;

constexpr char kCurve[] = "events.out.tfevents.1000.h";

class CurveFilesTest : public testing::Test {
 protected:
  CurveFilesTest() {
    std::string pattern = testing::TempDir() + "/curve_files_test.XXXXXX";
    dir_ = ::mkdtemp(pattern.data());
  }
  ~CurveFilesTest() override { fs::remove_all(dir_); }

  std::unique_ptr<CurveFiles> Begin(int64_t seconds) {
    auto curve = CurveFiles::Begin(Env::Real(), dir_, "h", absl::FromUnixSeconds(seconds));
    EXPECT_TRUE(curve.ok()) << curve.status();
    return *std::move(curve);
  }
  std::vector<std::string> Names() { return *Env::Real()->List(dir_); }
  void Copy(const std::string& to) { fs::copy_file(dir_ + "/" + kCurve, dir_ + "/" + to); }

  std::string dir_;
};

TEST_F(CurveFilesTest, ACompleteCurveReplacesEarlierOnes) {
  ASSERT_TRUE(Begin(1000)->Complete().ok());
  // Curves from other hosts, and from jobs that began in the same second.
  for (const char* name : {"events.out.tfevents.900.other-host-2", "events.out.tfevents.900.h2",
                           "events.out.tfevents.1000.h.1", "events.out.tfevents.1000.h.12.1"})
    Copy(name);
  Begin(1001).reset();  // a job that failed
  EXPECT_TRUE(fs::exists(dir_ + "/rerun-1"));
  ASSERT_TRUE(Begin(1002)->Complete().ok());
  EXPECT_THAT(Names(), ElementsAre("events.out.tfevents.1002.h"));
}

TEST_F(CurveFilesTest, CopiesWithOtherNamesStay) {
  ASSERT_TRUE(Begin(1000)->Complete().ok());
  std::vector<std::string> kept = {
      "events.out.tfevents.1000.h.bak", "events.out.tfevents.1000.h-old",
      "events.out.tfevents.1000.h (1)", "events.out.tfevents.1000.h.1.bak",
      "events.out.tfevents.mine.h",     "events.out.tfevents.1000.other.bak",
      "events.out.tfevents.1000"};
  for (const std::string& name : kept) Copy(name);
  for (const char* folder : {"rerun-", "rerun-old", "rerun-1-old", "rerun-1x"}) {
    fs::create_directory(dir_ + "/" + folder);
    kept.emplace_back(folder);
  }
  Copy("rerun-old/events.out.tfevents.1000.h");
  ASSERT_TRUE(Begin(1002)->Complete().ok());
  kept.emplace_back("events.out.tfevents.1002.h");
  EXPECT_THAT(Names(), UnorderedElementsAreArray(kept));
  EXPECT_TRUE(fs::exists(dir_ + "/rerun-old/events.out.tfevents.1000.h"));
}

}  // namespace
}  // namespace sluice
