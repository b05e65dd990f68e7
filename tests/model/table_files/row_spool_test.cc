#include "model/table_files/row_spool.h"

#include <linux/magic.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "common/base/hash.h"
#include "common/saved_model/shard_image.h"
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

TEST_F(RowSpoolTest, RowsOfAPartAreReadInTheOrderOfItsFileInFewReads) {
  // Reads part 1 in no order: its last stretch is in the file and in memory.
  constexpr uint64_t kRows = 90000, kStretch = 100'000;
  constexpr size_t kRecord = 12;
  auto spool = *RowSpool::Create(dir_, kOutput, 2, kRecord, 0);
  std::vector<uint64_t> expected;
  for (uint64_t key = 0; expected.size() < kRows; ++key) {
    const uint64_t spread = key * 0x9E3779B97F4A7C15u;
    if (ShardOfKey(spread, 2) != 1) continue;
    char* const to = *spool->Add(1);
    std::memcpy(to, &spread, 8);
    const auto value = static_cast<uint32_t>(3 * spread);
    std::memcpy(to + 8, &value, 4);
    expected.push_back(spread);
  }
  EXPECT_EQ(spool->PartBytes(0), 0u);
  auto rows = *SpooledRows::Create(spool.get(), 1, kStretch);
  ASSERT_EQ(rows->size(), kRows);
  std::vector<uint64_t> keys(kRows);
  std::vector<uint32_t> numbers(kRows);
  ASSERT_EQ(*rows->ReadKeys(0, 15000, keys.data(), numbers.data()), 15000u);
  ASSERT_EQ(*rows->ReadKeys(15000, kRows - 15000, &keys[15000], &numbers[15000]), kRows - 15000);
  for (uint32_t i = 0; i < kRows; ++i) ASSERT_EQ(numbers[i], i);
  const uint32_t runs = 2 * RunsOfShardFile(2, kRows * kRecord);
  EXPECT_GT(runs, 2u);
  std::sort(numbers.begin(), numbers.end(), [&](uint32_t a, uint32_t b) {
    const uint32_t of_a = ShardOfKey(keys[a], runs), of_b = ShardOfKey(keys[b], runs);
    return of_a != of_b ? of_a < of_b : keys[a] < keys[b];
  });
  const uint64_t before = spool->ReadsForTest();
  std::vector<uint32_t> values(2 * kRows);
  for (size_t at = 0; at < kRows; at += 1000) {
    ASSERT_TRUE(
        rows->ReadRecords(&numbers[at], 1000, 8, reinterpret_cast<char*>(&values[2 * at])).ok());
  }
  for (size_t i = 0; i < kRows; ++i)
    ASSERT_EQ(values[2 * i], static_cast<uint32_t>(3 * keys[numbers[i]]));
  // A stretch in two pieces, each of which may lie in two buffers.
  EXPECT_LE(spool->ReadsForTest() - before, 4 * (kRows * kRecord / kStretch + 1));
  std::sort(keys.begin(), keys.end());
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(keys, expected);
  // In another order, too.
  const uint32_t some[] = {numbers[kRows - 1], numbers[0]};
  uint32_t other[4];
  ASSERT_TRUE(rows->ReadRecords(some, 2, 8, reinterpret_cast<char*>(other)).ok());
  EXPECT_EQ(other[0], values[2 * kRows - 2]);
  EXPECT_EQ(other[2], values[0]);
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
