#include "model/table_files/row_spool.h"

#include <linux/magic.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>

#include <cstring>
#include <utility>

#include "tests/model/table_files/table_files_for_test.h"

namespace sluice {
namespace {

constexpr auto kOutput = RowSpool::Folder::kOutput, kTemporary = RowSpool::Folder::kTemporary;

class RowSpoolTest : public TableFilesTest {};

TEST_F(RowSpoolTest, EachPartHasItsRecordsInOrder) {
  // Parts of many buffers, of one, and of none.
  const uint64_t counts[] = {70000, 3, 0};
  auto spool = *RowSpool::Create(dir_, kOutput, 3, 12, 1000);
  EXPECT_TRUE(env_->List(dir_)->empty());  // no name
  for (uint64_t i = 0; i < 70000; ++i) {
    for (uint32_t part = 0; part < 3; ++part) {
      if (i >= counts[part]) continue;
      char* const to = *spool->Add(part);
      std::memcpy(to, &i, 8);
      std::memcpy(to + 8, &part, 4);
    }
  }
  std::string records;
  for (const uint32_t part : {2u, 0u, 1u, 0u}) {
    ASSERT_TRUE(spool->Read(part, &records).ok());
    ASSERT_EQ(records.size(), counts[part] * 12);
    for (uint64_t i = 0; i < counts[part]; ++i) {
      uint64_t number;
      uint32_t its_part;
      std::memcpy(&number, records.data() + i * 12, 8);
      std::memcpy(&its_part, records.data() + i * 12 + 8, 4);
      ASSERT_EQ(number, i);
      ASSERT_EQ(its_part, part);
    }
  }
}

TEST_F(RowSpoolTest, RowsOfAPartAreReadInAnyOrder) {
  auto spool = *RowSpool::Create(dir_, kOutput, 2, 12, 0);
  for (uint64_t i = 0; i < 70000; ++i) {
    char* const to = *spool->Add(1);
    std::memcpy(to, &i, 8);
    const auto value = static_cast<uint32_t>(3 * i);
    std::memcpy(to + 8, &value, 4);
  }
  EXPECT_EQ(spool->PartBytes(0), 0u);
  SpooledRows rows(spool.get(), 1);
  ASSERT_EQ(rows.size(), 70000u);
  std::vector<uint64_t> keys(50000);
  std::vector<uint32_t> numbers(50000);
  ASSERT_EQ(*rows.ReadKeys(15000, 50000, keys.data(), numbers.data()), 50000u);
  for (uint32_t i = 0; i < 50000; i += 777) {
    EXPECT_EQ(keys[i], 15000 + i);
    EXPECT_EQ(numbers[i], 15000 + i);
  }
  const uint32_t some[] = {69999, 0, 30000};
  uint32_t values[6] = {};
  ASSERT_TRUE(rows.ReadRecords(some, 3, 8, reinterpret_cast<char*>(values)).ok());
  EXPECT_EQ(values[0], 3 * 69999u);
  EXPECT_EQ(values[2], 0u);
  EXPECT_EQ(values[4], 3 * 30000u);
}

TEST_F(RowSpoolTest, ADiskWithoutRoomIsRefusedBeforeTheFirstRow) {
  for (const auto& [folder, fix] : {std::pair(kOutput, "--output"), {kTemporary, "TMPDIR"}}) {
    const auto spool = RowSpool::Create(dir_, folder, 1, 8, uint64_t{1} << 60);
    EXPECT_EQ(spool.status().code(), absl::StatusCode::kResourceExhausted);
    for (const char* const part : {dir_.c_str(), fix, "are free"})
      EXPECT_NE(spool.status().message().find(part), std::string::npos) << spool.status();
  }
}

TEST_F(RowSpoolTest, AnOutputTakesTheRowsTwice) {
  struct statvfs disk;
  ASSERT_EQ(statvfs(dir_.c_str(), &disk), 0);
  const uint64_t most = uint64_t{disk.f_bavail} * disk.f_frsize / 4 * 3;
  EXPECT_FALSE(RowSpool::Create(dir_, kOutput, 1, 8, most).ok());
  EXPECT_TRUE(RowSpool::Create(dir_, kOutput, 1, 8, most / 2).ok());
}

TEST_F(RowSpoolTest, MemoryIsNoDiskButMayBeTheOutput) {
  struct statfs memory;
  if (statfs("/dev/shm", &memory) != 0 || memory.f_type != TMPFS_MAGIC)
    GTEST_SKIP() << "/dev/shm is no tmpfs";
  constexpr uint64_t kAbove = RowSpool::kMostMemoryBytes + 1;
  if (memory.f_bavail * static_cast<uint64_t>(memory.f_bsize) < 2 * kAbove)
    GTEST_SKIP() << "/dev/shm is too small";
  EXPECT_TRUE(RowSpool::Create("/dev/shm", kTemporary, 1, 8, 1 << 10).ok());
  EXPECT_TRUE(RowSpool::Create("/dev/shm", kOutput, 1, 8, kAbove).ok());
  const auto spool = RowSpool::Create("/dev/shm", kTemporary, 1, 8, kAbove);
  EXPECT_EQ(spool.status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(RowSpoolTest, AFolderThatIsMissingIsNamed) {
  const auto spool = RowSpool::Create(Path("missing"), kOutput, 1, 8, 0);
  EXPECT_FALSE(spool.ok());
  EXPECT_NE(spool.status().message().find(Path("missing")), std::string::npos);
}

}  // namespace
}  // namespace sluice
