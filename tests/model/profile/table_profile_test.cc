#include "model/profile/table_profile.h"

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "tests/model/data/files_for_test.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Rows(int from, int to) {
  std::string text = "id,x,label\n";
  for (int i = from; i < to; ++i) absl::StrAppend(&text, i, ",", i % 10, ",", i % 2, "\n");
  return text;
}

TEST(TableProfileTest, AllLinesOfSmallFilesAreLookedAt) {
  const TempFolder folder;
  const auto table = ProfileTable(
      {folder.Write("a.csv", Rows(0, 3000)), folder.Write("b.csv", Rows(3000, 4000) + "1,2\n")},
      ProfileLimits(), Env::Real());
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_TRUE(table->whole);
  EXPECT_EQ(table->lines, 4001u);
  EXPECT_EQ(table->all_lines, 4001u);
  EXPECT_EQ(table->bad.count, 1u);
  EXPECT_THAT(table->bad.first, ElementsAre(HasSubstr("b.csv:1002: ")));
  ASSERT_EQ(table->columns.size(), 3u);
  EXPECT_EQ(table->columns[1].cells(), 4000u);
  EXPECT_EQ(table->columns[1].distinct().Count(), 10u);
  EXPECT_EQ(table->columns[0].numbers().Quantiles({1})[0], 3999);
}

TEST(TableProfileTest, AFileThatIsReadInPartIsReadInSeveralPlaces) {
  const TempFolder folder;
  ProfileLimits limits;
  limits.bytes = 64 << 10;
  const auto table = ProfileTable({folder.Write("a.csv", Rows(0, 200000))}, limits, Env::Real());
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_FALSE(table->whole);
  EXPECT_LT(table->lines, 10000u);
  EXPECT_LT(table->text_bytes, 2 * limits.bytes);
  EXPECT_NEAR(static_cast<double>(table->all_lines), 200000, 20000);
  EXPECT_GT(table->columns[0].numbers().Quantiles({1})[0], 170000);
  EXPECT_EQ(table->bad.count, 0u);
}

TEST(TableProfileTest, CompressedFilesAndColumnsThatComeLateAreRead) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 2000; ++i)
    absl::StrAppend(&text, i % 2, " 1:", i, i == 1500 ? " 9:1" : "", "\n");
  const auto table = ProfileTable({folder.Write("a.gz", Gzip(text))}, ProfileLimits(), Env::Real());
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_TRUE(table->files[0].compressed);
  ASSERT_EQ(table->columns.size(), 3u);
  EXPECT_EQ(table->columns[2].cells(), 2000u);
  EXPECT_EQ(table->columns[2].missing(), 1999u);
}

TEST(TableProfileTest, NamesOfSeveralColumnsAreFound) {
  const TempFolder folder;
  const auto table = ProfileTable({folder.Write("a.csv", "x,y,x,z,y,x\n1,2,3,4,5,6\n")},
                                  ProfileLimits(), Env::Real());
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_THAT(table->duplicate_names, ElementsAre("x", "y"));
}

TEST(TableProfileTest, WhatIsNoTableIsRefused) {
  const TempFolder folder;
  const auto error = [&](const std::vector<std::string>& files) {
    const auto table = ProfileTable(files, ProfileLimits(), Env::Real());
    EXPECT_FALSE(table.ok());
    return std::string(table.status().message());
  };
  const std::string sound = folder.Write("a.csv", Rows(0, 50));
  EXPECT_THAT(error({folder.Write("e.csv", "")}), HasSubstr("empty"));
  EXPECT_THAT(error({sound, folder.Write("t.tsv", "a\tb\n1\t2\n3\t4\n")}), HasSubstr("t.tsv"));
  EXPECT_THAT(error({sound, folder.Write("c.csv", "id,x,y\n1,2,3\n4,5,6\n")}), HasSubstr("c.csv"));
  EXPECT_THAT(error({folder.Write("p", std::string("PAR1\x15\x04\x15\0", 8))}),
              HasSubstr("Parquet"));
  EXPECT_THAT(error({folder.Write("u", std::string("\xFF\xFE"
                                                   "a\0,\0b\0\n\0",
                                                   10))}),
              HasSubstr("UTF-16"));
  EXPECT_FALSE(ProfileTable({sound + ".absent"}, ProfileLimits(), Env::Real()).ok());
}

TableProfile FoundFiles(const std::vector<std::pair<std::string, uint64_t>>& files) {
  TableProfile table;
  for (const auto& [path, lines] : files) {
    table.files.push_back({path});
    table.files.back().lines = lines;
  }
  return table;
}

TEST(TableProfileTest, FoldersOfAPatternAreColumnsWithTheirType) {
  const TableProfile table = FoundFiles({{"s3://b/v=1/day=2026-11-01/hour=7/country=de/a.csv", 30},
                                         {"s3://b/v=1/day=2026-11-02/hour=12/a.csv", 10},
                                         {"s3://b/v=1/day=2026-11-03/hour=12/empty.csv", 0}});
  const auto columns = FolderColumns({"s3://b/v=1/day=*/*/*.csv"}, table);
  std::vector<std::string> shown;
  for (const ColumnProfile& column : columns)
    shown.push_back(column.name() + " " + KindName(column.kind()));
  // `v` lies before the wildcard.
  EXPECT_THAT(shown, ElementsAre("day date", "hour integer", "country text"));
  EXPECT_EQ(columns[0].distinct().Count(), 2u);
  EXPECT_EQ(columns[1].numbers().Quantiles({0.5})[0], 7);  // of the rows, not of the files
  EXPECT_EQ(columns[2].cells(), 40u);
  EXPECT_EQ(columns[2].missing(), 10u);
}

TEST(TableProfileTest, OwnColumnsAndFilesThatAreNamedHaveNoFolderColumns) {
  TableProfile table = FoundFiles({{"/d/day=1/a.csv", 3}});
  EXPECT_THAT(FolderColumns({"/d/day=1/a.csv"}, table), IsEmpty());
  EXPECT_EQ(FolderColumns({"/d/*/a.csv"}, table).size(), 1u);
  table.columns.emplace_back("day");
  EXPECT_THAT(FolderColumns({"/d/*/a.csv"}, table), IsEmpty());
}

}  // namespace
}  // namespace sluice
