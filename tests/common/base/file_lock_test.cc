#include "common/base/file_lock.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace sluice {
namespace {

class FileLockTest : public testing::Test {
 protected:
  FileLockTest() { std::ofstream(path_) << "kept"; }
  ~FileLockTest() override { unlink(path_.c_str()); }
  std::string Text() {
    std::string text;
    std::ifstream(path_) >> text;
    return text;
  }
  const std::string path_ = testing::TempDir() + "file_lock_test." + std::to_string(getpid());
};

TEST_F(FileLockTest, NamesTheProcessThatHoldsTheLock) {
  {
    const auto first = FileLock::Take(path_);
    ASSERT_TRUE(first.ok()) << first.status();
    uint32_t holder = 0;
    EXPECT_TRUE(absl::IsAlreadyExists(FileLock::Take(path_, &holder).status()));
    // The holder is unknown in a sandbox whose /proc does not list the locks of its namespace.
    EXPECT_TRUE(holder == static_cast<uint32_t>(getpid()) || holder == 0) << holder;
  }
  EXPECT_TRUE(FileLock::Take(path_).ok());
  EXPECT_EQ(Text(), "kept");
}

TEST_F(FileLockTest, MovingTheLockKeepsIt) {
  auto first = FileLock::Take(path_);
  const FileLock second = *std::move(first);
  EXPECT_TRUE(absl::IsAlreadyExists(FileLock::Take(path_).status()));
}

TEST_F(FileLockTest, DeadProcessReleasesItsLock) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto lock = FileLock::Take(path_);
    _exit(write(ready[1], "x", 1) == 1 && lock.ok() ? pause() : 1);
  }
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_TRUE(absl::IsAlreadyExists(FileLock::Take(path_).status()));
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(FileLock::Take(path_).ok());
  close(ready[0]);
  close(ready[1]);
}

TEST_F(FileLockTest, FileThatCannotBeOpenedIsInvalidArgument) {
  const auto lock = FileLock::Take(path_ + "/below");
  EXPECT_TRUE(absl::IsInvalidArgument(lock.status()));
}

}  // namespace
}  // namespace sluice
