#include "common/shared_memory/sealed_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <cerrno>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

constexpr size_t kSize = 1 << 16;

FileDescriptor Duplicate(const SealedMemory& memory) { return FileDescriptor(dup(memory.fd())); }

TEST(SealedMemoryTest, BothMappingsShowTheSameBytes) {
  absl::StatusOr<SealedMemory> mine = SealedMemory::Create("test", kSize);
  ASSERT_TRUE(mine.ok()) << mine.status();
  absl::StatusOr<SealedMemory> theirs = SealedMemory::Map(Duplicate(*mine), kSize);
  ASSERT_TRUE(theirs.ok()) << theirs.status();
  EXPECT_NE(mine->data(), theirs->data());
  EXPECT_EQ(theirs->data()[kSize - 1], 0);
  mine->data()[kSize - 1] = 7;
  EXPECT_EQ(theirs->data()[kSize - 1], 7);
}

TEST(SealedMemoryTest, TheCreatorCannotShrinkIt) {
  absl::StatusOr<SealedMemory> memory = SealedMemory::Create("test", kSize);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(ftruncate(memory->fd(), 1), -1);
  EXPECT_EQ(memory->data()[kSize - 1], 0);
}

TEST(SealedMemoryTest, MemoryThatCouldShrinkIsRefused) {
  FileDescriptor unsealed(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), kSize), 0);
  EXPECT_EQ(SealedMemory::Map(std::move(unsealed), kSize).status().code(),
            absl::StatusCode::kInvalidArgument);
  FileDescriptor file(open("/dev/null", O_RDWR | O_CLOEXEC));
  EXPECT_EQ(SealedMemory::Map(std::move(file), kSize).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(SealedMemoryTest, AnotherSizeThanAgreedIsRefused) {
  absl::StatusOr<SealedMemory> memory = SealedMemory::Create("test", kSize);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(SealedMemory::Map(Duplicate(*memory), 2 * kSize).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(SealedMemoryTest, ProcessesOfOtherUsersCannotOpenIt) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  const absl::StatusOr<SealedMemory> memory = SealedMemory::Create("test", kSize);
  ASSERT_TRUE(memory.ok()) << memory.status();
  const std::string path = absl::StrCat("/proc/", getpid(), "/fd/", memory->fd());
  ASSERT_TRUE(FileDescriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC))) << "this user can";
  const pid_t child = fork();
  if (child == 0) {
    close(memory->fd());
    if (setgid(65534) != 0 || setuid(65534) != 0) _exit(1);
    if (open(path.c_str(), O_RDONLY) >= 0) _exit(2);
    _exit(errno == EACCES ? 0 : 3);
  }
  int exit_status = -1;
  waitpid(child, &exit_status, 0);
  EXPECT_EQ(exit_status, 0);
}

TEST(SealedMemoryTest, MovedMemoryKeepsItsBytes) {
  absl::StatusOr<SealedMemory> memory = SealedMemory::Create("test", kSize);
  ASSERT_TRUE(memory.ok()) << memory.status();
  memory->data()[0] = 5;
  SealedMemory moved = std::move(*memory);
  SealedMemory assigned;
  assigned = std::move(moved);
  EXPECT_EQ(assigned.data()[0], 5);
  EXPECT_EQ(assigned.size(), kSize);
}

}  // namespace
}  // namespace sluice
