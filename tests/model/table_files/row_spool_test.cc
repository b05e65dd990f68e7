#include "model/table_files/row_spool.h"

#include <cstring>

#include "tests/model/table_files/table_files_for_test.h"

namespace sluice {
namespace {

class RowSpoolTest : public TableFilesTest {};

TEST_F(RowSpoolTest, EachPartHasItsRecordsInOrder) {
  // Parts of many buffers, of one, and of none.
  const uint64_t counts[] = {70000, 3, 0};
  auto spool = *RowSpool::Create(dir_, 3, 12);
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

TEST_F(RowSpoolTest, AFolderThatIsMissingIsNamed) {
  const auto spool = RowSpool::Create(Path("missing"), 1, 8);
  EXPECT_FALSE(spool.ok());
  EXPECT_NE(spool.status().message().find(Path("missing")), std::string::npos);
}

}  // namespace
}  // namespace sluice
