// Parses the cells of a line into numbers, strictly, and quotes them in messages: a shifted column
// is a bad line and not a silent zero.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace sluice {
namespace internal {

template <typename Word>
inline uint64_t LoadWord(const char* p) {
  Word word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

// ParseNumber for any cell.
bool ParseAnyNumber(std::string_view cell, double* value);

}  // namespace internal

// Parses a cell of 1 to 8 decimal digits without a loop, by the method of Lemire, "Quickly parsing
// eight digits", 2018. False for any other cell.
inline bool ParseFewDigits(std::string_view cell, double* value) {
  const size_t n = cell.size();
  const char* const p = cell.data();
  if (n - 1 > 7) return false;
  // Load the digits into the upper n bytes of a word, the first digit lowest.
  uint64_t word;
  if (n >= 4) {
    const uint64_t first = internal::LoadWord<uint32_t>(p);
    const uint64_t last = internal::LoadWord<uint32_t>(p + n - 4);
    word = first << (64 - 8 * n) | last << 32;
  } else {
    const auto byte = [p](size_t i) { return static_cast<uint64_t>(static_cast<uint8_t>(p[i])); };
    word = byte(0) << (64 - 8 * n) | byte(n / 2) << (64 - 8 * n + n / 2 * 8) | byte(n - 1) << 56;
  }
  word ^= uint64_t{0x3030303030303030} << (64 - 8 * n);
  if (((word + 0x7676767676767676) | word) & 0x8080808080808080) return false;
  word = word * 10 + (word >> 8);  // pairs, in bytes 0, 2, 4, 6
  constexpr uint64_t kPairs = 0x000000FF000000FF;
  word = ((word & kPairs) * (100 + (uint64_t{1000000} << 32)) +
          ((word >> 16) & kPairs) * (1 + (uint64_t{10000} << 32))) >>
         32;
  *value = static_cast<double>(static_cast<uint32_t>(word));
  return true;
}

// Parses the whole cell as a finite number, such as "12", "-1.5e3" or "+2". A number that is too
// small for a double, such as "1e-400", is 0. False for "", "12a", "nan", "inf", "1e999", " 1".
inline bool ParseNumber(std::string_view cell, double* value) {
  return ParseFewDigits(cell, value) || internal::ParseAnyNumber(cell, value);
}

// As ParseNumber, for numbers whose decimal mark is ',', such as "0,5". A '.' is read as the mark
// where it cannot separate thousands: "16.84" is a number, and "1.234" is not.
bool ParseCommaNumber(std::string_view cell, double* value);

// Parses the whole cell as a decimal integer of int64 or uint64, such as "12" or "-3"; *key is its
// two's complement. False for "", "+1", "1.0", "18446744073709551616".
bool ParseKey(std::string_view cell, uint64_t* key);

// The first 40 bytes of the cell, escaped and in quotes.
std::string QuotedCell(std::string_view cell);

}  // namespace sluice
