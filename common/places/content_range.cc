#include "common/places/content_range.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace sluice {

std::optional<ContentRange> ParseContentRange(absl::string_view header) {
  ContentRange range;
  const size_t dash = header.find('-'), slash = header.find('/');
  if (!absl::StartsWithIgnoreCase(header, "bytes ") || dash == absl::string_view::npos ||
      slash == absl::string_view::npos || slash < dash) {
    return std::nullopt;
  }
  header.remove_prefix(6);
  const bool numbers = absl::SimpleAtoi(header.substr(0, dash - 6), &range.first) &&
                       absl::SimpleAtoi(header.substr(dash - 5, slash - dash - 1), &range.last) &&
                       absl::SimpleAtoi(header.substr(slash - 5), &range.size);
  if (!numbers || range.first > range.last || range.last >= range.size) return std::nullopt;
  return range;
}

absl::Status CheckPart(const HttpResponse& answer, uint64_t offset, size_t n, uint64_t size) {
  const auto range = ParseContentRange(answer.Header("content-range"));
  if (!range.has_value())
    return absl::UnavailableError("the answer does not say which part of the file it holds");
  const bool same_size = range->size == size;
  if (range->first != offset || (same_size && range->last != offset + n - 1)) {
    return absl::UnavailableError(absl::StrCat("the answer holds the bytes ", range->first, "-",
                                               range->last, " instead of ", offset, "-",
                                               offset + n - 1));
  }
  if (!same_size) {
    return absl::FailedPreconditionError(
        absl::StrCat("it has another version now (", range->size, " bytes instead of ", size, ")"));
  }
  if (answer.body.size() != n) {
    return absl::UnavailableError(
        absl::StrCat("the answer has ", answer.body.size(), " of ", n, " bytes"));
  }
  return absl::OkStatus();
}

}  // namespace sluice
