#include "model/features/cell.h"

#include <charconv>
#include <cmath>
#include <system_error>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/printable.h"

namespace sluice {
namespace {

// Parses at most 15 digits, which a double holds exactly, after an optional '-'. False for any
// other cell.
bool ParseWholeNumber(std::string_view cell, double* value) {
  const bool negative = !cell.empty() && cell[0] == '-';
  if (negative) cell.remove_prefix(1);
  if (cell.empty() || cell.size() > 15) return false;
  int64_t number = 0;
  for (const char c : cell) {
    const unsigned digit = static_cast<unsigned char>(c) - '0';
    if (digit > 9) return false;
    number = number * 10 + digit;
  }
  *value = static_cast<double>(number);
  if (negative) *value = -*value;
  return true;
}

}  // namespace

bool internal::ParseAnyNumber(std::string_view cell, double* value) {
  // Most cells are short whole numbers, for which this is several times as fast as from_chars.
  if (ParseWholeNumber(cell, value)) return true;
  // from_chars takes no plus sign, which LIBSVM files have before labels.
  if (cell.size() > 1 && cell[0] == '+' && cell[1] != '-') cell.remove_prefix(1);
  const char* end = cell.data() + cell.size();
  const auto [rest, error] = std::from_chars(cell.data(), end, *value);
  if (rest != end) return false;
  if (error == std::errc()) return std::isfinite(*value);
  // Too large, or so small that the nearest number is 0 or nearly so. from_chars does not tell.
  double nearest;
  if (error != std::errc::result_out_of_range ||
      !absl::SimpleAtod({cell.data(), cell.size()}, &nearest) || !(std::abs(nearest) < 1))
    return false;
  *value = nearest;
  return true;
}

bool ParseCommaNumber(std::string_view cell, double* value) {
  const size_t comma = cell.find(','), dot = cell.find('.');
  if (comma == std::string_view::npos) {
    // Three digits behind a dot may be thousands, and more parts are.
    const bool thousands =
        dot != std::string_view::npos &&
        cell.substr(dot + 1).find_first_not_of("0123456789") == std::string_view::npos &&
        cell.size() - dot == 4;
    return !thousands && ParseNumber(cell, value);
  }
  if (dot != std::string_view::npos) return false;
  std::string with_dot(cell);
  with_dot[comma] = '.';  // a second comma remains, and is no number
  return ParseNumber(with_dot, value);
}

bool ParseKey(std::string_view cell, uint64_t* key) {
  const char *const begin = cell.data(), *const end = begin + cell.size();
  if (!cell.empty() && cell[0] == '-') {
    int64_t number = 0;
    const auto [rest, error] = std::from_chars(begin, end, number);
    *key = static_cast<uint64_t>(number);
    return rest == end && error == std::errc();
  }
  const auto [rest, error] = std::from_chars(begin, end, *key);
  return rest == end && error == std::errc();
}

std::string QuotedCell(std::string_view cell) {
  constexpr size_t kMost = 40;
  const bool longer = cell.size() > kMost;
  if (longer) {
    size_t end = kMost;
    // Not within a character of UTF-8, which has at most 4 bytes.
    while (end > kMost - 4 && (static_cast<unsigned char>(cell[end]) & 0xC0) == 0x80) --end;
    cell = cell.substr(0, end);
  }
  // Cells may hold any bytes, such as escape sequences of a terminal.
  const absl::string_view text(cell.data(), cell.size());
  return absl::StrCat(
      "\"", IsPrintableLine(text) ? absl::Utf8SafeCHexEscape(text) : absl::CHexEscape(text),
      longer ? "...\"" : "\"");
}

}  // namespace sluice
