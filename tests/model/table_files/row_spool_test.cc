#include "model/table_files/row_spool.h"

#include <linux/magic.h>
#include <sys/vfs.h>

#include <cstring>

#include "tests/model/table_files/table_files_for_test.h"

namespace sluice {
namespace {

class RowSpoolTest : public TableFilesTest {};

TEST_F(RowSpoolTest, EachPartHasItsRecordsInOrder) {
  // Parts of many buffers, of one, and of none.
  const uint64_t counts[] = {70000, 3, 0};
  auto spool = *RowSpool::Create(dir_, 3, 12, 1000);
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
  auto spool = *RowSpool::Create(dir_, 2, 12, 0);
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
  const auto spool = RowSpool::Create(dir_, 1, 8, uint64_t{1} << 60);
  EXPECT_EQ(spool.status().code(), absl::StatusCode::kResourceExhausted);
  for (const char* const part : {dir_.c_str(), "TMPDIR", "are free"})
    EXPECT_NE(spool.status().message().find(part), std::string::npos) << spool.status();
}

TEST_F(RowSpoolTest, MemoryIsNoDisk) {
  struct statfs memory;
  if (statfs("/dev/shm", &memory) != 0 || memory.f_type != TMPFS_MAGIC)
    GTEST_SKIP() << "/dev/shm is no tmpfs";
  EXPECT_TRUE(RowSpool::Create("/dev/shm", 1, 8, 1 << 10).ok());
  const auto spool = RowSpool::Create("/dev/shm", 1, 8, RowSpool::kMostMemoryBytes + 1);
  EXPECT_EQ(spool.status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(RowSpoolTest, AFolderThatIsMissingIsNamed) {
  const auto spool = RowSpool::Create(Path("missing"), 1, 8, 0);
  EXPECT_FALSE(spool.ok());
  EXPECT_NE(spool.status().message().find(Path("missing")), std::string::npos);
}

}  // namespace
}  // namespace sluice
