#include "common/places/url.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

std::string Encode(absl::string_view text, bool is_path) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isalnum(byte) || c == '-' || c == '.' || c == '_' || c == '~' ||
        (is_path && c == '/')) {
      encoded += c;
    } else {
      encoded += '%';
      encoded += kDigits[byte >> 4];
      encoded += kDigits[byte & 15];
    }
  }
  return encoded;
}

// Parameters of URLs that are themselves a permission to read.
bool CarriesPermission(absl::string_view rest) {
  const std::string lower = absl::AsciiStrToLower(rest);
  for (const char* name : {"x-amz-signature=", "x-amz-credential=", "x-amz-security-token=",
                           "x-goog-signature=", "sig=", "signature=", "access_token="}) {
    for (const char* before : {"?", "&"})
      if (absl::StrContains(lower, absl::StrCat(before, name))) return true;
  }
  return false;
}

constexpr size_t kLongestKey = 1024, kLongestUrl = 8 << 10;

// Without a look for permissions and fragments.
absl::StatusOr<UrlParts> ParseAnyWebUrl(absl::string_view url) {
  if (url.size() > kLongestUrl)
    return absl::InvalidArgumentError(absl::StrCat("it has more than ", kLongestUrl, " bytes"));
  const size_t scheme_end = url.find("://");
  UrlParts parts;
  if (scheme_end != absl::string_view::npos) parts.scheme = std::string(url.substr(0, scheme_end));
  if (parts.scheme != "http" && parts.scheme != "https")
    return absl::InvalidArgumentError("it is no http:// or https:// URL");
  const absl::string_view rest = url.substr(scheme_end + 3);
  const size_t path = rest.find_first_of("/?#");
  parts.authority = std::string(rest.substr(0, path));
  parts.rest = path == absl::string_view::npos ? "/" : std::string(rest.substr(path));
  if (parts.rest[0] != '/') parts.rest = absl::StrCat("/", parts.rest);
  if (const size_t hash = parts.rest.find('#'); hash != std::string::npos) parts.rest.resize(hash);
  if (absl::StrContains(parts.authority, '@')) {
    return absl::InvalidArgumentError(
        "it carries a user name or password, which would come into the job, its logs and its "
        "result; serve the file without them inside your network, or put it on a store (s3://)");
  }
  const size_t colon = parts.authority.rfind(':');
  const bool ipv6 = absl::StartsWith(parts.authority, "[");
  parts.host = parts.authority.substr(
      0, colon != std::string::npos && (!ipv6 || parts.authority[colon - 1] == ']')
             ? colon
             : std::string::npos);
  if (parts.host.empty()) return absl::InvalidArgumentError("it names no host");
  const auto control = [](unsigned char c) { return c <= ' ' || c == 127; };
  if (std::any_of(url.begin(), url.end(), control)) {
    return absl::InvalidArgumentError(
        "it has blanks or control characters; write them as %XX, a blank as %20");
  }
  return parts;
}

}  // namespace

absl::StatusOr<StorePath> ParseStorePath(absl::string_view path) {
  const absl::string_view rest = path.substr(std::min(path.size(), size_t{5}));  // "s3://"
  const size_t slash = rest.find('/');
  StorePath parts;
  parts.bucket = std::string(rest.substr(0, slash));
  if (slash != absl::string_view::npos) parts.key = std::string(rest.substr(slash + 1));
  const bool named = !parts.bucket.empty() && parts.bucket.size() <= 255 &&
                     parts.bucket[0] != '.' &&
                     std::all_of(parts.bucket.begin(), parts.bucket.end(), [](unsigned char c) {
                       return absl::ascii_isalnum(c) || c == '-' || c == '.' || c == '_';
                     });
  if (!named) {
    return absl::InvalidArgumentError(
        "it names no bucket; write s3://BUCKET/KEY, without wildcards in the bucket's name");
  }
  if (parts.key.empty())
    return absl::InvalidArgumentError(
        "it names a bucket and no object; write s3://BUCKET/KEY, or "
        "s3://BUCKET/* for all objects of the top folder");
  if (parts.key.size() > kLongestKey) {
    return absl::InvalidArgumentError(absl::StrCat(
        "its key has ", parts.key.size(), " bytes; keys of stores have at most ", kLongestKey));
  }
  return parts;
}

absl::StatusOr<UrlParts> ParseWebUrl(absl::string_view url) {
  auto parts = ParseAnyWebUrl(url);
  if (!parts.ok()) return parts;
  if (absl::StrContains(url, '#')) {
    return absl::InvalidArgumentError(
        "it has a '#', and servers are not sent what follows; write it as %23");
  }
  if (CarriesPermission(parts->rest)) {
    return absl::InvalidArgumentError(
        "it carries a signed permission, which would come into the job, its logs and its result; "
        "give the object's own path (s3://) and the credentials to the workers");
  }
  return parts;
}

absl::StatusOr<UrlParts> ParseRedirect(absl::string_view url) {
  if (url.size() > kLongestUrl) {
    return absl::FailedPreconditionError(
        absl::StrCat("the server redirects to a URL of more than ", kLongestUrl, " bytes"));
  }
  auto parts = ParseAnyWebUrl(url);
  if (parts.ok()) return parts;
  // The reasons for a URL of a job do not fit: nobody wrote this one.
  return absl::FailedPreconditionError(
      "the server redirects to what is no plain http:// or https:// URL, or to one with a user "
      "name "
      "or password; give the URL of the file itself");
}

std::string ResolveLocation(const UrlParts& url, absl::string_view location) {
  if (absl::StartsWith(location, "//")) return absl::StrCat(url.scheme, ":", location);
  if (absl::StartsWith(location, "/"))
    return absl::StrCat(url.scheme, "://", url.authority, location);
  if (absl::StrContains(location.substr(0, location.find_first_of("/?#")), ':'))
    return std::string(location);
  const std::string path = url.rest.substr(0, url.rest.find('?'));
  return absl::StrCat(url.scheme, "://", url.authority, path.substr(0, path.rfind('/') + 1),
                      location);
}

std::string EncodeUrlPath(absl::string_view path) { return Encode(path, true); }
std::string EncodeUrlValue(absl::string_view value) { return Encode(value, false); }

}  // namespace sluice
