// Prints messages on standard error.
//
// Thread safety: a free function, safe from any thread.
#pragma once

#include <string>

namespace sluice::cli {

// Prints `text`, which may have several lines, and a line end. On a terminal the lines are Wrapped:
// it would break them inside words.
void PrintOnStderr(const std::string& text);

}  // namespace sluice::cli
