#include "model/data/text_form.h"

#include <cstring>

#include "common/base/crc32c.h"
#include "gmock/gmock.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string FormError(const std::string& head) {
  const absl::Status status = CheckTextForm("F", head);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << head;
  return std::string(status.message());
}

std::string Widened(const std::string& text, bool big_endian) {
  std::string wide;
  for (const char c : text) {
    if (big_endian) wide += '\0';
    wide += c;
    if (!big_endian) wide += '\0';
  }
  return wide;
}

TEST(TextFormTest, OtherFormsAreNamedWithARemedy) {
  using std::string;
  EXPECT_THAT(FormError(string("PAR1\x15\x04\x15", 7)),
              AllOf(HasSubstr("data file F is a Parquet file"), HasSubstr("data.format: PARQUET")));
  EXPECT_THAT(FormError(string("\xFD"
                               "7zXZ\0\0",
                               7)),
              AllOf(HasSubstr("xz"), HasSubstr("xz -dc F")));
  EXPECT_THAT(FormError("PK\x03\x04 rest"), HasSubstr("zip archive"));
  EXPECT_THAT(FormError("BZh91AY&SY"), HasSubstr("bzip2"));
  EXPECT_THAT(FormError("ORC\x08\x03"), HasSubstr("ORC"));
  EXPECT_THAT(FormError(string(257, 'n') + "ustar  "), HasSubstr("tar -xf F"));
  EXPECT_THAT(FormError(string(257, 'n') + string("ustar\00000", 8)), HasSubstr("tar -xf F"));
  // Text may have that word there.
  for (const char* const text : {"ustar,", "ustar mustard", "ustar\n"})
    EXPECT_TRUE(CheckTextForm("F", string(257, 'n') + text).ok()) << text;
}

TEST(TextFormTest, TextThatIsCompressedTwiceIsNamed) {
  EXPECT_THAT(FormError("\x1F\x8B\x08 rest"), HasSubstr("compressed twice"));
  EXPECT_THAT(FormError("\x28\xB5\x2F\xFD rest"), HasSubstr("compressed twice"));
}

TEST(TextFormTest, JsonIsNamed) {
  EXPECT_THAT(FormError("{\"y\": 1, \"x\": [2]}\n{\"y\": 0}\n"),
              AllOf(HasSubstr("JSON"), HasSubstr("JSON_LINES")));
  EXPECT_THAT(FormError("\xEF\xBB\xBF[\n  {\n  \"y\" : 1},\n"), HasSubstr("JSON"));
  EXPECT_THAT(FormError("{\"a line longer than the head\":\"" + std::string(400, 'x')),
              HasSubstr("JSON"));
  for (const char* text : {"{\"a\":1}\t1\t2\n", "{a},b\n", "[1, 2],x\n", "{", "[", "{\"a"})
    EXPECT_TRUE(CheckTextForm("F", text).ok()) << text;
}

TEST(TextFormTest, WideTextIsNamed) {
  EXPECT_THAT(FormError("\xFF\xFE" + Widened("a,b\n", false)), HasSubstr("iconv -f UTF-16"));
  const std::string header = "clicked,price,site,tags,and,more,columns\n";
  EXPECT_THAT(FormError(Widened(header, true)), HasSubstr("UTF-16"));
  EXPECT_THAT(FormError(Widened(header, false)), HasSubstr("UTF-16"));
  EXPECT_THAT(FormError(std::string("\xFF\xFE\0\0a\0\0\0", 8)), HasSubstr("UTF-32"));
}

TEST(TextFormTest, TfRecordsAreKnownByTheirChecksum) {
  std::string head("\x20\0\0\0\0\0\0\0", 8);
  const uint32_t crc = Crc32c(head.data(), 8);
  const uint32_t masked = (crc >> 15 | crc << 17) + 0xa282ead8U;
  head.append(reinterpret_cast<const char*>(&masked), 4);
  EXPECT_THAT(FormError(head), HasSubstr("TFRecord"));
  head[0] = 0x21;
  EXPECT_TRUE(CheckTextForm("F", head).ok());
}

TEST(TextFormTest, TextIsTextWhateverItsFirstLetters) {
  for (const char* text : {"", "1", "PAR1,PAR2\n1,2\n", "ORCHID,x\n", "BZh9,b\n", "FEA1\tFEA2\n",
                           "\xEF\xBB\xBF"
                           "a,b\n",
                           "1\t\t\t\n", "caf\xC3\xA9,b\n", "caf\xE9,b\n"}) {
    EXPECT_TRUE(CheckTextForm("F", text).ok()) << text;
  }
}

}  // namespace
}  // namespace sluice
