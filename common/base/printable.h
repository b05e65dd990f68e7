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

// Returns the text as a JSON string with its quotes. Escapes control characters, quotes and
// backslashes.
// REQUIRES: `text` is valid UTF-8.
std::string JsonQuoted(absl::string_view text);

}  // namespace sluice
