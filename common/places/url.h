// Takes URLs of data apart, and encodes the parts of requests in the one form that signatures need.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice {

// "s3://BUCKET/KEY". The key is every byte after the slash, as it is: nothing in it is decoded.
struct StorePath {
  std::string bucket, key;
};
// INVALID_ARGUMENT says what is wrong with the path, as a reason alone. A key has at most 1,024
// bytes, which is the limit of stores.
absl::StatusOr<StorePath> ParseStorePath(absl::string_view path);

// The parts of "SCHEME://HOST[:PORT][/REST]". `authority` is HOST[:PORT]; `rest` has its slash.
struct UrlParts {
  std::string scheme, authority, host, rest;
};
// INVALID_ARGUMENT: it is no http or https URL, it has more than 8 KiB or a fragment (#), or it
// carries a user name, a password or a signed permission. Those would come into jobs, logs and
// results. Messages do not repeat the URL.
absl::StatusOr<UrlParts> ParseWebUrl(absl::string_view url);

// The same for the URL that a server redirects to. It may carry a signed permission, since it comes
// into no job, and a fragment, which is left out. FAILED_PRECONDITION, and the message does not
// repeat any of it.
absl::StatusOr<UrlParts> ParseRedirect(absl::string_view url);

// The URL that a redirect from `url` leads to; `location` may be relative.
std::string ResolveLocation(const UrlParts& url, absl::string_view location);

// Encodes all bytes but letters, digits and "-._~" as %XX, in a path also not '/'.
std::string EncodeUrlPath(absl::string_view path);
std::string EncodeUrlValue(absl::string_view value);

}  // namespace sluice
