// Parses whole numbers that are not written in plain digits, such as 1e6.
//
// Thread safety:
//   pure function.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace sluice {

// "1000000" for "1e6", "2" for "2.0"; nullopt unless `text` is a whole number of at most 2^53.
std::optional<std::string> DigitsOf(absl::string_view text);

}  // namespace sluice
