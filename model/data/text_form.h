// Recognizes files that are not text in a form that can be read, by their first bytes, and says
// what they are and what to do.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace sluice {

// As many first bytes of a file as any form needs.
inline constexpr size_t kTextFormBytes = 512;

// INVALID_ARGUMENT when `head`, the first bytes of a file or of the text compressed in it, begins
// another form than text: a format of columns or records, an archive, another compression, UTF-16.
// `path` is for the message.
// `json`: text of JSON is read; otherwise it is another form too.
absl::Status CheckTextForm(const std::string& path, std::string_view head, bool json = false);

// Whether a text begins with an object of JSON, or an array of them.
bool IsJson(std::string_view head);

// The error about text whose lines end in CR alone.
absl::Status LinesEndInCr(const std::string& path);

}  // namespace sluice
