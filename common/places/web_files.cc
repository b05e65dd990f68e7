#include "common/places/web_files.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/base/url_roots.h"
#include "common/places/content_range.h"
#include "common/places/url.h"

namespace sluice {
namespace {

constexpr char kTimeTag[] = "of ";  // before the time of a version without an ETag

absl::Status Explain(const HttpResponse& answer) {
  const std::string status = absl::StrCat("HTTP ", answer.status);
  switch (answer.status) {
    case 404:
    case 410:
      return absl::NotFoundError(absl::StrCat("the server has no such file (", status, ")"));
    case 401:
    case 403:
    case 407:
      return absl::PermissionDeniedError(absl::StrCat("the server refuses to let it be read (",
                                                      status, "); no credentials are sent to it"));
    case 412:
    case 416:
      return absl::FailedPreconditionError("the file has another version now");
    default:
      break;
  }
  return absl::Status(
      answer.busy() ? absl::StatusCode::kUnavailable : absl::StatusCode::kFailedPrecondition,
      absl::StrCat("the server answered with ", status));
}

// The version that an answer is of; "" when it does not say. A weak ETag names none: it may stay
// the same when bytes change.
std::string TagOf(const HttpResponse& answer) {
  std::string tag = answer.Header("etag");
  if (!tag.empty() && !absl::StartsWith(tag, "W/")) return tag;
  const std::string time = answer.Header("last-modified");
  return time.empty() ? "" : absl::StrCat(kTimeTag, time);
}

// False: the answer is of another version than `tag`. Not every server looks at the conditions.
bool MayBeOf(const std::string& tag, const HttpResponse& answer) {
  if (!absl::StartsWith(tag, kTimeTag)) {
    const std::string found = answer.Header("etag");
    return found.empty() || found == tag;
  }
  const std::string time = answer.Header("last-modified");
  return time.empty() || tag == absl::StrCat(kTimeTag, time);
}

}  // namespace

absl::StatusOr<HttpResponse> WebFiles::Send(HttpRequest request) {
  auto url_of = ParseWebUrl(request.url);
  for (int redirects = 0;; ++redirects) {
    SLUICE_ASSIGN_OR_RETURN(const UrlParts url, url_of);
    SLUICE_ASSIGN_OR_RETURN(HttpResponse answer, transport_->Send(request));
    const std::string location = answer.Header("location");
    const bool moved = answer.status == 301 || answer.status == 302 || answer.status == 303 ||
                       answer.status == 307 || answer.status == 308;
    if (!moved || location.empty()) return answer;
    if (redirects == kMostRedirects) {
      return absl::FailedPreconditionError(
          absl::StrCat("the server redirects more than ", kMostRedirects, " times"));
    }
    const std::string target = ResolveLocation(url, location);
    request.url = target.substr(0, target.find('#'));
    if (url.scheme == "https" && !absl::StartsWith(request.url, "https://")) {
      return absl::PermissionDeniedError(
          "the server redirects from https to a URL that is not; give the URL of the file itself");
    }
    url_of = ParseRedirect(request.url);
    if (url_of.ok() && !RedirectIsAllowed(request.url)) {
      return absl::PermissionDeniedError(
          "the server redirects to a URL that is not below --data_root; give a URL below it, or "
          "start the daemon with another root");
    }
  }
}

absl::StatusOr<FileIdentity> WebFiles::Identify(const std::string& path) {
  SLUICE_RETURN_IF_ERROR(ParseWebUrl(path).status());
  HttpRequest request;
  request.method = "HEAD";
  request.url = path;
  SLUICE_ASSIGN_OR_RETURN(HttpResponse answer, Send(request));
  uint64_t size = 0;
  bool sized = answer.status == 200 && absl::SimpleAtoi(answer.Header("content-length"), &size);
  if (!sized) {
    // Some servers only answer GET, or know the size only then.
    request.method = "GET";
    request.headers = {"Range: bytes=0-0"};
    request.range_bytes = 1;
    request.most_bytes = kMostErrorBytes;
    SLUICE_ASSIGN_OR_RETURN(HttpResponse part, Send(request));
    if (part.status == 206) {
      const auto range = ParseContentRange(part.Header("content-range"));
      sized = range.has_value() && range->first == 0;
      if (sized) size = range->size;
      answer = std::move(part);
    } else if (answer.status != 200) {
      return Explain(part.status == 200 ? answer : part);
    }
  }
  if (!sized) return absl::FailedPreconditionError("the server does not say how large the file is");
  const std::string tag = TagOf(answer);
  if (tag.empty()) {
    return absl::FailedPreconditionError(
        "the server gives neither a strong ETag nor a Last-Modified time, so a change of the file "
        "would "
        "not be seen; copy the file");
  }
  return IdentityOfVersion(size, tag);
}

absl::StatusOr<std::string> WebFiles::ReadRange(const std::string& path,
                                                const FileIdentity& identity, uint64_t offset,
                                                size_t n) {
  HttpRequest request;
  request.url = path;
  request.headers = {absl::StrCat("Range: bytes=", offset, "-", offset + n - 1)};
  absl::string_view time = identity.tag;
  if (absl::ConsumePrefix(&time, kTimeTag)) {
    request.headers.push_back(absl::StrCat("If-Unmodified-Since: ", time));
  } else {
    request.headers.push_back(absl::StrCat("If-Match: ", identity.tag));
  }
  request.range_bytes = n;
  request.most_bytes = std::max(n, kMostErrorBytes);
  HttpResponse answer;
  absl::Status part;
  for (int tries = 0; tries < kPartTries; ++tries) {
    SLUICE_ASSIGN_OR_RETURN(answer, Send(request));
    part = answer.status == 206 ? CheckPart(answer, offset, n, identity.size) : absl::OkStatus();
    if (!absl::IsUnavailable(part)) break;
  }
  const bool whole =
      answer.status == 200 && offset == 0 && answer.body.size() == n && n == identity.size;
  if (answer.status == 200 && !whole) {
    return absl::FailedPreconditionError(
        "the server does not give parts of files (Range); copy the file, or use a server that "
        "does");
  }
  if (answer.status != 206 && !whole) return Explain(answer);
  if (!MayBeOf(identity.tag, answer))
    return absl::FailedPreconditionError("the file has another version now");
  SLUICE_RETURN_IF_ERROR(part);
  return std::move(answer.body);
}

absl::StatusOr<FileMatches> WebFiles::Match(
    const std::string& pattern, size_t most_names,
    const std::function<void(const std::string&, const FileIdentity&)>& found) {
  SLUICE_ASSIGN_OR_RETURN(const FileIdentity identity, Identify(pattern));
  found(pattern, identity);
  FileMatches matches;
  matches.paths = {pattern};
  matches.names_read = std::min<size_t>(1, most_names);
  return matches;
}

}  // namespace sluice
