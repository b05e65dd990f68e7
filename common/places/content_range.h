// Which bytes of a file an answer with a part of it (206) holds, by its Content-Range.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/places/http_transport.h"

namespace sluice {

// A request for a part is sent so often while the answers hold another one.
constexpr int kPartTries = 3;
// Room for the text of an error, in answers to requests for few bytes.
constexpr size_t kMostErrorBytes = 64 << 10;

struct ContentRange {
  uint64_t first = 0, last = 0,
           size = 0;  // `last` is the part's last byte, `size` the whole file's
};
// From "bytes FIRST-LAST/SIZE"; nullopt for another form, also for a size that is not known ("*").
std::optional<ContentRange> ParseContentRange(absl::string_view header);

// Checks that the answer, a 206, holds the bytes [offset, offset + n) of a file of `size` bytes.
// UNAVAILABLE: it holds others, and another try may bring the right ones. FAILED_PRECONDITION: the
// file has another size.
absl::Status CheckPart(const HttpResponse& answer, uint64_t offset, size_t n, uint64_t size);

}  // namespace sluice
