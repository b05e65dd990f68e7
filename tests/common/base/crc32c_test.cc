#include "common/base/crc32c.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace sluice {
namespace {

// RFC 3720, appendix B.4, and the usual check value.
TEST(Crc32cTest, KnownValues) {
  EXPECT_EQ(Crc32c("", 0), 0u);
  EXPECT_EQ(Crc32c("123456789", 9), 0xE3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0').data(), 32), 0x8A9136AAu);
  EXPECT_EQ(Crc32c(std::string(32, '\xff').data(), 32), 0x62A8AB43u);
  std::string ascending(32, '\0');
  for (int i = 0; i < 32; ++i) ascending[i] = static_cast<char>(i);
  EXPECT_EQ(Crc32c(ascending.data(), 32), 0x46DD794Eu);
}

TEST(Crc32cTest, BothPathsAgreeOnEveryLengthAndAlignment) {
  std::mt19937_64 random(11);
  std::vector<uint8_t> bytes(300);
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(random());
  for (size_t begin = 0; begin < 9; ++begin) {
    for (size_t n = 0; n < 260; ++n) {
      ASSERT_EQ(ExtendCrc32c(5, &bytes[begin], n), ExtendCrc32cPortableForTest(5, &bytes[begin], n))
          << begin << " " << n;
    }
  }
}

TEST(Crc32cTest, PiecesEqualTheWhole) {
  const std::string text = "a frame that travels in several slices";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    const uint32_t first = Crc32c(text.data(), cut);
    EXPECT_EQ(ExtendCrc32c(first, text.data() + cut, text.size() - cut),
              Crc32c(text.data(), text.size()));
  }
}

}  // namespace
}  // namespace sluice
