// What whole number a text means that does not write it in digits.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace sluice {

// "1000000" of "1e6", "2" of "2.0"; none of what is no whole number of at most 2^53.
std::optional<std::string> DigitsOf(absl::string_view text);

}  // namespace sluice
