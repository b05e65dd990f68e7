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

TEST(Crc32cTest, CombinedChecksumsEqualTheChecksumOfTheWhole) {
  std::mt19937_64 random(12);
  std::string bytes(70000, '\0');
  for (char& b : bytes) b = static_cast<char>(random());
  const uint32_t whole = Crc32c(bytes.data(), bytes.size());
  for (const size_t cut :
       {size_t{0}, size_t{1}, size_t{7}, size_t{4096}, size_t{69999}, bytes.size()}) {
    const uint32_t a = Crc32c(bytes.data(), cut);
    const uint32_t b = Crc32c(bytes.data() + cut, bytes.size() - cut);
    EXPECT_EQ(CombineCrc32c(a, b, ShiftCrc32c(bytes.size() - cut)), whole) << cut;
  }
}

TEST(Crc32cTest, ShiftsOfLongPiecesAddUp) {
  // A shift by n + m bytes equals a shift by n and then by m, even for sizes that exceed memory.
  const uint64_t n = uint64_t{3} << 40, m = (uint64_t{1} << 33) + 5;
  const uint32_t crc = 0x12345678;
  EXPECT_EQ(CombineCrc32c(crc, 0, ShiftCrc32c(n + m)),
            CombineCrc32c(CombineCrc32c(crc, 0, ShiftCrc32c(n)), 0, ShiftCrc32c(m)));
}

}  // namespace
}  // namespace sluice
