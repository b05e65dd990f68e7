#include "model/data/row_groups.h"

#include "gmock/gmock.h"

namespace sluice {
namespace {

// The rows at which units begin, with their files.
std::vector<std::pair<uint32_t, uint64_t>> Units(const std::vector<CountedPiece>& pieces) {
  std::vector<std::pair<uint32_t, uint64_t>> units;
  for (const CountedPiece& piece : pieces) {
    if (!piece.goes_on) units.emplace_back(piece.file, piece.begin);
  }
  return units;
}

void ExpectCovered(const std::vector<CountedPiece>& pieces, uint32_t file, uint64_t rows) {
  uint64_t at = 0;
  for (const CountedPiece& piece : pieces) {
    if (piece.file != file) continue;
    EXPECT_EQ(piece.begin, at);
    EXPECT_GT(piece.end, piece.begin);
    EXPECT_EQ(piece.lines, piece.end - piece.begin);
    at = piece.end;
  }
  EXPECT_EQ(at, rows);
}

TEST(RowGroupsTest, ManyGroupsAreTheUnits) {
  const std::vector<FileOfRows> files = {{2, std::vector<RowGroup>(6, {100'000, 8'000'000})},
                                         {5, std::vector<RowGroup>(2, {50'000, 4'000'000})}};
  const auto pieces = CutRows(files, 2);
  ExpectCovered(pieces, 2, 600'000);
  ExpectCovered(pieces, 5, 100'000);
  EXPECT_THAT(Units(pieces),
              ::testing::ElementsAre(std::pair(2, 0), std::pair(2, 100'000), std::pair(2, 200'000),
                                     std::pair(2, 300'000), std::pair(2, 400'000),
                                     std::pair(2, 500'000), std::pair(5, 0), std::pair(5, 50'000)));
  // Pieces inside of them are short enough for a lane to hold one.
  for (const CountedPiece& piece : pieces) EXPECT_LE(piece.lines, 64u << 10);
  EXPECT_GT(pieces.size(), 8u);
}

TEST(RowGroupsTest, FewGroupsAreCutInEqualRuns) {
  const auto pieces = CutRows({{0, {{100'000, 1 << 20}}}}, 4);
  ExpectCovered(pieces, 0, 100'000);
  const auto units = Units(pieces);
  ASSERT_EQ(units.size(), 16u);
  for (size_t u = 0; u < units.size(); ++u) EXPECT_EQ(units[u].second, u * 6250);
  // Runs are not shorter than 4,096 rows.
  EXPECT_EQ(Units(CutRows({{0, {{10'000, 1 << 20}}}}, 64)).size(), 2u);
  EXPECT_EQ(Units(CutRows({{0, {{5'000, 1 << 20}}}}, 64)).size(), 1u);
}

TEST(RowGroupsTest, GroupsOfMuchDataAreCutInFewRuns) {
  const std::vector<RowGroup> groups(3, {400'000, 100 << 20});
  const auto pieces = CutRows({{0, groups}}, 64);
  ExpectCovered(pieces, 0, 1'200'000);
  EXPECT_EQ(Units(pieces).size(), 3 * kMostRuns);
}

TEST(RowGroupsTest, LargeGroupsAreStreamed) {
  const auto pieces = CutRows({{0, {{10'000'000, kMostRunBytes + 1}}}}, 64);
  ExpectCovered(pieces, 0, 10'000'000);
  EXPECT_EQ(Units(pieces).size(), 1u);
}

TEST(RowGroupsTest, RowsOfAnyNumberHaveFewPieces) {
  const std::vector<RowGroup> groups(3, {uint64_t{1} << 40, 100});
  const auto pieces = CutRows({{0, groups}}, 64);
  ExpectCovered(pieces, 0, uint64_t{3} << 40);
  EXPECT_LE(pieces.size(), kMostPiecesOfRows + 3 * kMostRuns * 64);
}

TEST(RowGroupsTest, EmptyFilesAndGroupsHaveNoPieces) {
  EXPECT_TRUE(CutRows({{0, {}}, {1, {{0, 0}}}}, 1).empty());
  const auto pieces = CutRows({{0, {{0, 0}, {3, 0}, {0, 10}}}}, 1);
  ExpectCovered(pieces, 0, 3);
  EXPECT_EQ(pieces.size(), 1u);
}

TEST(RowGroupsTest, RowsOfBytesRoundsToAtLeastOne) {
  EXPECT_EQ(RowsOfBytes({100, 1000}, 55), 5u);
  EXPECT_EQ(RowsOfBytes({100, 1000}, 1), 1u);
  EXPECT_EQ(RowsOfBytes({0, 0}, 1), 1u);
}

}  // namespace
}  // namespace sluice
