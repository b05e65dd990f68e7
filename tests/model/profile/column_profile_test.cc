#include "model/profile/column_profile.h"

#include <gmock/gmock.h>

#include <cmath>
#include <functional>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;

ColumnProfile ProfileOf(const std::string& name, const std::vector<std::string>& cells) {
  ColumnProfile profile(name);
  profile.LookAt(cells);
  for (const std::string& cell : cells) profile.Add(cell);
  return profile;
}

std::vector<std::string> Many(int n, const std::function<std::string(int)>& cell) {
  std::vector<std::string> cells;
  for (int i = 0; i < n; ++i) cells.push_back(cell(i));
  return cells;
}

TEST(ColumnProfileTest, NumbersHaveRangeMomentsAndKind) {
  const auto integers = ProfileOf("n", {"3", "-1", "", "7", "3"});
  EXPECT_EQ(integers.kind(), ColumnKind::kInteger);
  EXPECT_EQ(integers.missing(), 1u);
  EXPECT_EQ(integers.distinct().Count(), 3u);
  EXPECT_EQ(integers.numbers().Quantiles({0, 1}), (std::vector<double>{-1, 7}));
  EXPECT_DOUBLE_EQ(integers.moments().mean, 3);
  EXPECT_NEAR(integers.moments().stddev(), std::sqrt(8), 1e-12);
  EXPECT_EQ(ProfileOf("n", {"3", "0.5", "1e3"}).kind(), ColumnKind::kNumber);
  const auto commas = ProfileOf("n", {"0,5", "1,25", "3"});
  EXPECT_EQ(commas.kind(), ColumnKind::kNumber);
  EXPECT_TRUE(commas.decimal_comma());
  EXPECT_TRUE(ProfileOf("zip", {"01234", "90210"}).has_leading_zeros());
  EXPECT_EQ(ProfileOf("n", {"", ""}).kind(), ColumnKind::kEmpty);
}

TEST(ColumnProfileTest, SpellingsOfMissingValuesAreCounted) {
  const auto numbers = ProfileOf("n", {"1", "NA", "-", "2", "NA", "\\N", ""});
  EXPECT_EQ(numbers.kind(), ColumnKind::kInteger);
  EXPECT_EQ(numbers.missing(), 5u);
  EXPECT_EQ(numbers.odd_cells(), 0u);
  ASSERT_EQ(numbers.missing_spellings().size(), 3u);
  EXPECT_EQ(numbers.missing_spellings()[0].text, "NA");
  EXPECT_EQ(numbers.missing_spellings()[0].count, 2u);
  // Among words "none" may be a value, and "?" is none.
  const auto words = ProfileOf("w", {"none", "?", "some", "none"});
  EXPECT_EQ(words.kind(), ColumnKind::kText);
  EXPECT_EQ(words.missing(), 1u);
  EXPECT_EQ(words.distinct().Count(), 2u);
}

TEST(ColumnProfileTest, AFewOddCellsDoNotChangeTheKind) {
  auto cells = Many(1000, [](int i) { return absl::StrCat(i % 50); });
  cells[500] = "oops";
  const auto profile = ProfileOf("n", cells);
  EXPECT_EQ(profile.kind(), ColumnKind::kInteger);
  EXPECT_EQ(profile.odd_cells(), 1u);
  for (int i = 0; i < 100; ++i) cells[i] = "oops";
  EXPECT_EQ(ProfileOf("n", cells).kind(), ColumnKind::kText);
}

TEST(ColumnProfileTest, DatesAreRecognizedWithTheirForm) {
  const auto usual = ProfileOf("d", {"2001-01-01 00:01", "2001-01-02 23:59"});
  EXPECT_EQ(usual.kind(), ColumnKind::kDate);
  EXPECT_EQ(usual.date_format(), "");
  EXPECT_TRUE(usual.date_has_time());
  EXPECT_EQ(usual.days(), 2u);
  EXPECT_EQ(usual.earliest(), 978307260);
  EXPECT_EQ(usual.latest(), 978479940);
  const auto avazu = ProfileOf("hour", {"14102100", "14102123"});
  EXPECT_EQ(avazu.kind(), ColumnKind::kDate);
  EXPECT_EQ(avazu.date_format(), "%y%m%d%H");
  EXPECT_TRUE(avazu.date_has_time());
  EXPECT_EQ(ProfileOf("timestamp", {"978300760", "978302109"}).date_format(), "EPOCH_S");
  // Numbers whose name says nothing of dates are numbers.
  EXPECT_EQ(ProfileOf("amount", {"14102100", "14102123"}).kind(), ColumnKind::kInteger);
  // A day above 12 tells days from months, wherever it comes.
  auto cells = Many(2000, [](int i) { return absl::StrCat(1 + i % 12, "/0", 1 + i % 9, "/2014"); });
  ColumnProfile profile("d");
  profile.LookAt(cells);
  for (const std::string& cell : cells) profile.Add(cell);
  for (int i = 0; i < 3000; ++i) profile.Add("25/03/2014");
  EXPECT_EQ(profile.date_format(), "%d/%m/%Y");
  EXPECT_EQ(profile.earliest(), 1388534400) << "2014-01-01";
  EXPECT_EQ(profile.latest(), 1410480000) << "2014-09-12";
}

TEST(ColumnProfileTest, CellsOfSeveralValuesAreCut) {
  const auto genres = ProfileOf("genres", Many(200, [](int i) {
                                  return i % 3 == 0   ? std::string("Drama")
                                         : i % 3 == 1 ? absl::StrCat("Action|Drama|Y", i % 7)
                                                      : absl::StrCat("War|Y", i % 5);
                                }));
  EXPECT_EQ(genres.kind(), ColumnKind::kSeveralValues);
  EXPECT_EQ(genres.parts_delimiter(), "|");
  EXPECT_FALSE(genres.parts_have_weights());
  EXPECT_EQ(genres.parts().Count(), 10u);
  const auto weighted = ProfileOf(
      "tags", Many(200, [](int i) { return absl::StrCat("a", i % 9, ":0.5;b", i % 7, ":2"); }));
  EXPECT_EQ(weighted.kind(), ColumnKind::kSeveralValues);
  EXPECT_EQ(weighted.parts_delimiter(), ";");
  EXPECT_TRUE(weighted.parts_have_weights());
  EXPECT_EQ(weighted.parts().Count(), 16u);
  EXPECT_EQ(ProfileOf("items",
                      Many(200, [](int i) { return absl::StrCat(i % 9, " ", i % 7, " ", i % 5); }))
                .kind(),
            ColumnKind::kSeveralValues);
  // Sentences and names are text.
  EXPECT_EQ(ProfileOf("name", Many(200, [](int i) { return absl::StrCat("Doe", i, ", Jane", i); }))
                .kind(),
            ColumnKind::kText);
}

}  // namespace
}  // namespace sluice
