#include "common/config/whole_number.h"

#include <cmath>
#include <cstdint>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace sluice {

std::optional<std::string> DigitsOf(absl::string_view text) {
  constexpr double kExact = 0x1p53;  // beyond this, a double cannot hold every whole number
  double value;
  if (!absl::SimpleAtod(text, &value) || !(std::abs(value) <= kExact)) return std::nullopt;
  if (value != std::floor(value)) return std::nullopt;
  return absl::StrCat(static_cast<int64_t>(value));
}

}  // namespace sluice
