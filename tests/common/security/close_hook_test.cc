#include "common/security/close_hook.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

namespace sluice {
namespace {

int OpenFile() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }
bool IsOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }

TEST(CloseHookTest, TheWatcherIsToldOnceWhileTheDescriptorIsStillOpen) {
  const int fd = OpenFile();
  int told = 0;
  bool was_open = false;
  ASSERT_TRUE(WatchClose(fd, [&] {
    ++told;
    was_open = IsOpen(fd);
  }));
  EXPECT_EQ(told, 0);
  EXPECT_EQ(close(fd), 0);
  EXPECT_EQ(told, 1);
  EXPECT_TRUE(was_open);
  EXPECT_FALSE(IsOpen(fd));
}

TEST(CloseHookTest, ADescriptorThatIsUsedAgainIsNotWatched) {
  const int fd = OpenFile();
  int told = 0;
  WatchClose(fd, [&] { ++told; });
  close(fd);
  const int again = OpenFile();
  ASSERT_EQ(again, fd);
  close(again);
  EXPECT_EQ(told, 1);
}

TEST(CloseHookTest, CloseStillReportsErrors) {
  EXPECT_EQ(close(-1), -1);
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(close(1 << 30), -1);
  EXPECT_EQ(errno, EBADF);
  EXPECT_FALSE(WatchClose(-1, [] {}));
  EXPECT_FALSE(WatchClose(1 << 30, [] {}));
}

TEST(CloseHookTest, ThreadsThatOpenAndCloseAreEachToldOfTheirOwn) {
  std::atomic<int> told{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        const int fd = OpenFile();
        int mine = 0;
        WatchClose(fd, [&] { ++mine; });
        close(fd);
        told += mine;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(told, 8000);
}

// The thread sanitizer reports a race here unless it has seen the close. The threads are not
// ordered in a way that it knows, and neither does it know that memfd_create makes a descriptor.
TEST(CloseHookTest, AnotherThreadMayUseTheNumberOfAClosedDescriptor) {
  std::atomic<int> number{-1};
  std::thread thread([&] {
    const int fd = OpenFile();
    close(fd);
    number.store(fd, std::memory_order_relaxed);
  });
  while (number.load(std::memory_order_relaxed) < 0) std::this_thread::yield();
  const int again = memfd_create("close_hook_test", MFD_CLOEXEC);
  EXPECT_EQ(again, number.load(std::memory_order_relaxed));
  EXPECT_EQ(write(again, "x", 1), 1);
  EXPECT_EQ(close(again), 0);
  thread.join();
}

TEST(CloseHookTest, AChildOfForkMayCloseWhatNobodyWatches) {
  const int watched = OpenFile(), other = OpenFile();
  int told = 0;
  WatchClose(watched, [&] { ++told; });
  const pid_t child = fork();
  if (child == 0) _exit(close(other) == 0 ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(told, 0);
  close(other);
  close(watched);
  EXPECT_EQ(told, 1);
}

}  // namespace
}  // namespace sluice
