#include "model/features/cell.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace sluice {
namespace {

TEST(ParseNumberTest, TakesWholeFiniteNumbers) {
  double value = 0;
  EXPECT_TRUE(ParseNumber("12", &value) && value == 12);
  EXPECT_TRUE(ParseNumber("-1.5e3", &value) && value == -1500);
  EXPECT_TRUE(ParseNumber("+2", &value) && value == 2);
  EXPECT_TRUE(ParseNumber(".25", &value) && value == 0.25);
}

TEST(ParseNumberTest, RefusesEverythingElse) {
  double value;
  for (const char* cell : {"", " ", "12a", "a", "1 ", " 1", "nan", "inf", "-inf", "NaN", "1e999",
                           "+", "+-2", "-", "1,5", "0x10", "1e", "--1"}) {
    EXPECT_FALSE(ParseNumber(cell, &value)) << cell;
  }
}

TEST(ParseFewDigitsTest, EveryLengthAndPlace) {
  double value = -1;
  for (uint32_t number : {0u, 1u, 9u, 10u, 57u, 99u, 100u, 123u, 1000u, 9876u, 12345u, 678901u,
                          1234567u, 90807060u, 12345678u, 99999999u}) {
    const std::string text = std::to_string(number);
    for (size_t zeros = 0; zeros + text.size() <= 8; ++zeros) {
      const std::string cell = std::string(zeros, '0') + text;
      EXPECT_TRUE(ParseFewDigits(cell, &value)) << cell;
      EXPECT_EQ(value, number) << cell;
      // Exactly as large as the cell, so that the address sanitizer detects a read outside it.
      const std::vector<char> exact(cell.begin(), cell.end());
      EXPECT_TRUE(ParseFewDigits(std::string_view(exact.data(), exact.size()), &value));
    }
  }
}

TEST(ParseFewDigitsTest, RefusesEveryOtherByteInEveryPlace) {
  double value;
  for (size_t n = 1; n <= 8; ++n) {
    for (size_t place = 0; place < n; ++place) {
      for (int byte = 0; byte < 256; ++byte) {
        std::string cell(n, '4');
        cell[place] = static_cast<char>(byte);
        EXPECT_EQ(ParseFewDigits(cell, &value), byte >= '0' && byte <= '9') << cell;
      }
    }
  }
  EXPECT_FALSE(ParseFewDigits("", &value));
  EXPECT_FALSE(ParseFewDigits("123456789", &value));
}

int Part(std::string_view cell, DatePart part) {
  int value;
  return ParseDatePart(cell, part, &value) ? value : -1;
}

TEST(ParseDatePartTest, TakesEveryPart) {
  EXPECT_EQ(Part("2001-06-30 23:05", YEAR), 2001);
  EXPECT_EQ(Part("2001-06-30 23:05", MONTH), 6);
  EXPECT_EQ(Part("2001-06-30 23:05", DAY_OF_MONTH), 30);
  EXPECT_EQ(Part("2001-06-30 23:05", DAY_OF_YEAR), 181);
  EXPECT_EQ(Part("2001-06-30 23:05", DAY_OF_WEEK), 6);
  EXPECT_EQ(Part("2001-06-30 23:05", HOUR), 23);
  EXPECT_EQ(Part("2001-06-30 23:05", MINUTE_OF_DAY), 1385);
  EXPECT_EQ(Part("2001-06-30T23:05:59", HOUR), 23);
  EXPECT_EQ(Part("2001-06-30", MONTH), 6);
}

TEST(ParseDatePartTest, KnowsTheCalendar) {
  EXPECT_EQ(Part("2001-01-01", DAY_OF_WEEK), 1);
  EXPECT_EQ(Part("1970-01-01", DAY_OF_WEEK), 4);
  EXPECT_EQ(Part("2000-02-29", DAY_OF_WEEK), 2);
  EXPECT_EQ(Part("2026-11-21", DAY_OF_WEEK), 6);
  EXPECT_EQ(Part("0000-01-01", DAY_OF_WEEK), 6);
  EXPECT_EQ(Part("2000-12-31", DAY_OF_YEAR), 366);
  EXPECT_EQ(Part("1900-12-31", DAY_OF_YEAR), 365);
}

TEST(ParseDatePartTest, RefusesCellsThatAreNotDates) {
  for (const char* cell : {"", "2001", "2001-13-01", "2001-00-01", "2001-02-29", "2001-01-00",
                           "2001-1-1", "2001-01-01 ", "2001-01-01 24:00", "2001-01-01 10:60",
                           "2001-01-01 10:00:61", "2001-01-01 10:00:00Z", "2001-01-01x10:00",
                           "01-01-2001 00:00", "2001-01-01 1:00", "2001-01-01 10:00:"}) {
    EXPECT_EQ(Part(cell, YEAR), -1) << cell;
  }
}

TEST(ParseDatePartTest, RefusesTimePartsOfCellsWithoutATime) {
  EXPECT_EQ(Part("2001-01-01", HOUR), -1);
  EXPECT_EQ(Part("2001-01-01", MINUTE_OF_DAY), -1);
}

}  // namespace
}  // namespace sluice
