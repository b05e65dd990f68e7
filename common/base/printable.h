// Makes text from outside (files, cells, errors about them) safe to show to people and peers, and
// to put into JSON.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace sluice {

// Returns `text` as valid UTF-8, which protobuf strings must be. Bytes that are not valid UTF-8,
// and control characters other than newline and tab, become \xNN. All other text stays unchanged.
std::string Printable(absl::string_view text);

// The same for text that is shown on one line, in a log, a table or a terminal. Newlines, tabs, C1
// control characters, line separators, and characters that change the direction of the text around
// them (such as U+202E) become \xNN, too: none of them may end the line, or show other text than
// there is.
std::string PrintableLine(absl::string_view text);
// The same for text of several lines. Lines after the first are indented by four spaces, so that
// none looks like a line of its own.
std::string PrintableLines(absl::string_view text);
// True when PrintableLine changes nothing.
bool IsPrintableLine(absl::string_view text);

// Returns the text as a JSON string with its quotes. Escapes control characters, quotes and
// backslashes.
// REQUIRES: `text` is valid UTF-8.
std::string JsonQuoted(absl::string_view text);

}  // namespace sluice
