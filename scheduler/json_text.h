// Text as JSON has it.
#pragma once

#include <string>

namespace sluice {

// With its quotes; control characters, quotes and backslashes are escaped. REQUIRES: UTF-8.
std::string JsonQuoted(const std::string& text);

}  // namespace sluice
