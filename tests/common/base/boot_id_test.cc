#include "common/base/boot_id.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

namespace sluice {
namespace {

TEST(BootIdTest, IsAnIdOfTheKernelsForm) {
  EXPECT_THAT(BootId(), testing::MatchesRegex("[0-9a-f-]{36}"));
}

TEST(BootIdTest, OtherProcessesOfTheHostHaveTheSame) {
  const std::string own = BootId();
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  const pid_t child = fork();
  if (child == 0) {
    const std::string id = BootId();
    _exit(write(fds[1], id.data(), id.size()) == static_cast<ssize_t>(id.size()) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  char other[64] = "";
  ASSERT_EQ(read(fds[0], other, sizeof(other) - 1), static_cast<ssize_t>(own.size()));
  EXPECT_EQ(own, other);
  close(fds[0]);
  close(fds[1]);
}

}  // namespace
}  // namespace sluice
