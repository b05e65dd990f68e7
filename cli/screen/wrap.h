// Breaks long lines between words, for a terminal.
//
// Thread safety: a pure function.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace sluice::cli {

// Returns `line`, without its line end, as lines of at most `width` columns. It breaks at blanks
// only; further lines are indented by two columns more than the first. Words that are longer than
// a line, and lines that are commands to copy (sluice ...) or rewrite the screen, stay whole. A
// character of several bytes counts as one column.
std::string Wrapped(absl::string_view line, size_t width);

}  // namespace sluice::cli
