#include "cli/unfinished_scores.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace sluice::cli {
namespace {

using testing::ElementsAre;

class UnfinishedScoresTest : public testing::Test {
 protected:
  UnfinishedScoresTest() : dir_(testing::TempDir() + "unfinished_scores_test") {
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
  }
  ~UnfinishedScoresTest() override { std::filesystem::remove_all(dir_); }

  void Write(const std::string& name, const std::string& text = "0.25\nnan\n") {
    std::ofstream(dir_ + "/" + name) << text;
  }
  std::vector<std::string> RemoveAndList() {
    RemoveUnfinishedScores(dir_ + "/out", Env::Real());
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(dir_))
      names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }
  // Returns the pid of a process that has ended.
  static std::string Ended() {
    const pid_t pid = fork();
    if (pid == 0) _exit(0);
    waitpid(pid, nullptr, 0);
    return absl::StrCat(pid);
  }

  const std::string dir_;
};

TEST_F(UnfinishedScoresTest, FilesOfEndedProcessesAreRemoved) {
  const std::string one = Ended(), parts = Ended(), empty = Ended(), ids = Ended();
  Write("out");
  Write("out." + one + ".unfinished", "0.25\n1e-07\n0.1234");  // cut off
  Write("out." + empty + ".unfinished", "");
  Write("out." + ids + ".unfinished", "u\t1\t0.5\n\tnan\n");
  for (const char* part : {"0", "11", "all"}) Write("out." + parts + ".part-" + part);
  EXPECT_THAT(RemoveAndList(), ElementsAre("out"));
}

TEST_F(UnfinishedScoresTest, FilesOfALiveProcessAreKept) {
  const std::string here = absl::StrCat(getpid());
  Write("out." + here + ".unfinished");
  Write("out." + here + ".part-0");
  Write("out." + here + ".part-all", "");
  EXPECT_EQ(RemoveAndList().size(), 3u);
}

// The processes of another container are not visible here and seem to have ended.
TEST_F(UnfinishedScoresTest, LockedFilesAreKeptWithTheirParts) {
  const std::string one = Ended(), parts = Ended();
  Write("out." + one + ".unfinished");
  const int fd = open((dir_ + "/out." + one + ".unfinished").c_str(), O_RDONLY);
  ASSERT_EQ(flock(fd, LOCK_EX | LOCK_NB), 0);
  Write("out." + parts + ".part-0");
  ASSERT_TRUE(ClaimUnfinished(dir_ + "/out." + parts + ".part-all").ok());
  EXPECT_EQ(RemoveAndList().size(), 3u);
  close(fd);
  EXPECT_EQ(RemoveAndList().size(), 2u);
}

TEST_F(UnfinishedScoresTest, ForeignFilesAreKept) {
  const std::string pid = Ended();
  std::vector<std::string> kept;
  const std::string names[] = {"out." + pid + ".unfinished.bak", "out." + pid + "x.unfinished",
                               "out.0" + pid + ".unfinished",    "out." + pid + ".old.unfinished",
                               "out2." + pid + ".unfinished",    "out.unfinished",
                               "out." + pid + ".part-1"};  // without a part-all
  for (const std::string& name : names) {
    Write(name);
    kept.push_back(name);
  }
  kept.push_back("out." + pid + ".unfinished");  // not scores
  Write(kept.back(), "0.5\nmy notes\n");
  std::sort(kept.begin(), kept.end());
  EXPECT_EQ(RemoveAndList(), kept);

  const std::string link = "out." + Ended() + ".unfinished";
  Write("scores");
  std::filesystem::create_symlink("scores", dir_ + "/" + link);
  kept.insert(kept.end(), {"scores", link});
  std::sort(kept.begin(), kept.end());
  EXPECT_EQ(RemoveAndList(), kept);
}

}  // namespace
}  // namespace sluice::cli
