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

TEST(ParseKeyTest, TakesWholeNumbersOf64Bits) {
  uint64_t key = 7;
  EXPECT_TRUE(ParseKey("0", &key) && key == 0);
  EXPECT_TRUE(ParseKey("0012", &key) && key == 12);
  EXPECT_TRUE(ParseKey("18446744073709551615", &key) && key == UINT64_MAX);
  EXPECT_TRUE(ParseKey("-1", &key) && key == UINT64_MAX);
  EXPECT_TRUE(ParseKey("-9223372036854775808", &key) && key == uint64_t{1} << 63);
  for (const char* cell : {"", "-", "+1", "--1", "1.0", "1e3", " 1", "1 ", "0x1", "a", "1a",
                           "18446744073709551616", "-9223372036854775809"}) {
    EXPECT_FALSE(ParseKey(cell, &key)) << cell;
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

TEST(ParseNumberTest, UnderflowIsZero) {
  double value = 1;
  EXPECT_TRUE(ParseNumber("1e-400", &value) && value == 0);
  value = 1;
  EXPECT_TRUE(ParseNumber("-0.1e-999", &value) && value == 0);
  EXPECT_TRUE(ParseNumber("3e-310", &value) && value > 0 && value < 1e-300);
  EXPECT_FALSE(ParseNumber("-1e999", &value));
  EXPECT_FALSE(ParseNumber("1e-400x", &value));
}

TEST(ParseCommaNumberTest, TakesTheCommaAsTheDecimalMark) {
  double value = 0;
  EXPECT_TRUE(ParseCommaNumber("0,5", &value) && value == 0.5);
  EXPECT_TRUE(ParseCommaNumber("-1,5e3", &value) && value == -1500);
  EXPECT_TRUE(ParseCommaNumber("12", &value) && value == 12);
  EXPECT_TRUE(ParseCommaNumber("16.84", &value) && value == 16.84);
  for (const char* cell : {"", ",", "1.234", "1.234,5", "1,2,3", "1.2.3", "a"})
    EXPECT_FALSE(ParseCommaNumber(cell, &value)) << cell;
}

TEST(QuotedCellTest, TextsOfPeopleStayReadableAndOtherBytesAreEscaped) {
  EXPECT_EQ(QuotedCell("S\u00e3o Paulo"), "\"S\u00e3o Paulo\"");
  EXPECT_EQ(QuotedCell("say \"no\""), R"("say \"no\"")");
  EXPECT_EQ(QuotedCell("a\tb"), R"("a\tb")");
  EXPECT_EQ(QuotedCell("Orl\xe9"
                       "ans"),
            R"("Orl\xe9\x61ns")");  // ISO 8859-1
  EXPECT_EQ(QuotedCell("\u202eabc"), R"("\xe2\x80\xae\x61\x62\x63")");
  // 14 characters of 3 bytes, of which 13 fit.
  std::string shown, cell;
  for (int i = 0; i < 14; ++i) cell += "\u6771";
  for (int i = 0; i < 13; ++i) shown += "\u6771";
  EXPECT_EQ(QuotedCell(cell), "\"" + shown + "...\"");
}

}  // namespace
}  // namespace sluice
