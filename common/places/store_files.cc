#include "common/places/store_files.h"

#include <fnmatch.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/places/answer_text.h"
#include "common/places/content_range.h"

namespace sluice {
namespace {

constexpr char kScheme[] = "s3://";
constexpr char kWildcards[] = "*?[";

// A weak ETag never matches (If-Match), and may stay the same when bytes change.
bool IsVersion(const std::string& tag) { return !tag.empty() && !absl::StartsWith(tag, "W/"); }

std::string PathOf(const std::string& bucket, const std::string& key) {
  return absl::StrCat(kScheme, bucket, "/", key);
}

bool HasWildcard(const std::string& part) {
  for (size_t i = 0; i < part.size(); ++i) {
    if (part[i] == '\\') {
      ++i;
    } else if (absl::StrContains(kWildcards, part[i])) {
      return true;
    }
  }
  return false;
}

// The text that a pattern begins with, and nothing else: up to its first wildcard.
std::string LiteralHead(const std::string& part) {
  std::string head;
  for (size_t i = 0; i < part.size() && !absl::StrContains(kWildcards, part[i]); ++i) {
    if (part[i] == '\\' && i + 1 < part.size()) ++i;
    head += part[i];
  }
  return head;
}

// Without the marks before characters that would be wildcards.
std::string WithoutMarks(const std::string& part) {
  std::string plain;
  for (size_t i = 0; i < part.size(); ++i) {
    if (part[i] == '\\' && i + 1 < part.size()) ++i;
    plain += part[i];
  }
  return plain;
}

// Names that begin with _ or . are those of programs (_SUCCESS, _temporary), unless they are asked
// for.
bool Matches(const std::string& part, const std::string& name) {
  if (name.empty()) return false;
  if ((name[0] == '_' || name[0] == '.') && absl::StrContains(kWildcards, part[0])) return false;
  return ::fnmatch(part.c_str(), name.c_str(), 0) == 0;
}

}  // namespace

absl::StatusOr<FileIdentity> StoreFiles::Identify(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const StorePath parts, ParseStorePath(path));
  HttpRequest request;
  request.method = "HEAD";
  request.url = requests_.UrlOf(parts, "");
  const HttpRequest head = request;
  std::string source;
  SLUICE_ASSIGN_OR_RETURN(HttpResponse answer, requests_.Send(request, &source));
  if (answer.status != 200) {
    // An answer to HEAD has no body that says why.
    request.method = "GET";
    request.headers = {"Range: bytes=0-0"};
    request.range_bytes = 1;
    request.most_bytes = kMostErrorBytes;
    SLUICE_ASSIGN_OR_RETURN(HttpResponse why, requests_.Send(request, &source));
    // With new credentials, if those of HEAD had ended.
    if (why.status == 206 || why.status == 200) {
      answer = std::move(why);
    } else if (why.status == 416) {  // an object without bytes has no part
      SLUICE_ASSIGN_OR_RETURN(answer, requests_.Send(head, &source));
      if (answer.status != 200) return requests_.Explain(parts, answer, source);
    } else {
      return requests_.Explain(parts, why, source);
    }
  }
  uint64_t size = 0;
  bool sized = absl::SimpleAtoi(answer.Header("content-length"), &size);
  if (answer.status == 206) {
    const auto range = ParseContentRange(answer.Header("content-range"));
    sized = range.has_value() && range->first == 0;
    if (sized) size = range->size;
  }
  const std::string tag = answer.Header("etag");
  if (!sized || !IsVersion(tag)) {
    return absl::FailedPreconditionError(
        "the store gives the object no size, or no ETag but a weak one (W/), so a change of it "
        "would "
        "not be seen; copy the file");
  }
  return IdentityOfVersion(size, tag);
}

absl::StatusOr<std::string> StoreFiles::ReadRange(const std::string& path,
                                                  const FileIdentity& identity, uint64_t offset,
                                                  size_t n) {
  SLUICE_ASSIGN_OR_RETURN(const StorePath parts, ParseStorePath(path));
  HttpRequest request;
  request.url = requests_.UrlOf(parts, "");
  request.headers = {absl::StrCat("Range: bytes=", offset, "-", offset + n - 1),
                     absl::StrCat("If-Match: ", identity.tag)};
  request.range_bytes = n;
  request.most_bytes = std::max<size_t>(n, kMostErrorBytes);  // an error's text may be longer
  std::string source;
  HttpResponse answer;
  absl::Status part;
  for (int tries = 0; tries < kPartTries; ++tries) {
    SLUICE_ASSIGN_OR_RETURN(answer, requests_.Send(request, &source));
    part = answer.status == 206 ? CheckPart(answer, offset, n, identity.size) : absl::OkStatus();
    if (!absl::IsUnavailable(part)) break;
  }
  const bool whole = answer.status == 200 && offset == 0 && n == identity.size;
  if (answer.status == 412 || answer.status == 416 || answer.status == 404) {
    return absl::FailedPreconditionError(
        answer.status == 404 ? "the object is gone" : "the object has another version now");
  }
  if (answer.status == 200 && !whole)
    return absl::FailedPreconditionError("the store does not give parts of objects");
  if (answer.status != 206 && !whole) return requests_.Explain(parts, answer, source);
  // A store that ignores If-Match still names what it sent.
  if (const std::string tag = answer.Header("etag"); !tag.empty() && tag != identity.tag) {
    return absl::FailedPreconditionError(absl::StrCat("the object has another version now (", tag,
                                                      " instead of ", identity.tag, ")"));
  }
  SLUICE_RETURN_IF_ERROR(part);
  if (answer.body.size() != n) {
    return absl::UnavailableError(
        absl::StrCat("the answer has ", answer.body.size(), " of ", n, " bytes"));
  }
  return std::move(answer.body);
}

// One search.
struct StoreFiles::Walk {
  size_t most_names = 0;
  const std::function<void(const std::string&, const FileIdentity&)> found;
  FileMatches matches;
};

absl::StatusOr<StoreFiles::Listing> StoreFiles::List(const std::string& bucket,
                                                     const std::string& prefix, Walk* walk) {
  Listing listing;
  std::string next;
  const size_t before = walk->matches.names_read;
  while (true) {
    HttpRequest request;
    // The parameters by name, as the signature wants them.
    request.url = requests_.UrlOf(
        {bucket, ""}, absl::StrCat(next.empty() ? "" : "continuation-token=", EncodeUrlValue(next),
                                   next.empty() ? "" : "&",
                                   "delimiter=%2F&list-type=2&prefix=", EncodeUrlValue(prefix)));
    std::string source;
    SLUICE_ASSIGN_OR_RETURN(const HttpResponse answer, requests_.Send(request, &source));
    if (answer.status != 200) return requests_.Explain({bucket, prefix}, answer, source);
    for (const absl::string_view one : XmlElements(answer.body, "Contents")) {
      uint64_t size = 0;
      if (!absl::SimpleAtoi(XmlText(one, "Size"), &size)) continue;
      std::string tag = XmlText(one, "ETag");
      // Some stores leave out the quotes here, and not in the headers of objects.
      if (absl::StartsWith(tag, "W/")) tag = "";
      if (!tag.empty() && tag[0] != '"') tag = absl::StrCat("\"", tag, "\"");
      listing.objects.emplace_back(XmlText(one, "Key"), IdentityOfVersion(size, std::move(tag)));
    }
    for (const absl::string_view one : XmlElements(answer.body, "CommonPrefixes"))
      listing.folders.push_back(XmlText(one, "Prefix"));
    walk->matches.names_read =
        std::min(walk->most_names, before + listing.objects.size() + listing.folders.size());
    if (walk->matches.names_read == walk->most_names) {
      walk->matches.too_many_names = true;
      return listing;
    }
    if (XmlText(answer.body, "IsTruncated") != "true") return listing;
    std::string after = XmlText(answer.body, "NextContinuationToken");
    if (after.empty() || after == next)
      return absl::FailedPreconditionError("the store's list of objects does not go on");
    next = std::move(after);
  }
}

absl::Status StoreFiles::Expand(const std::string& bucket, std::string prefix,
                                const std::vector<std::string>& parts, size_t at, Walk* walk) {
  if (walk->matches.too_many_names) return absl::OkStatus();
  const bool last = at + 1 == parts.size();
  const std::string& part = parts[at];
  if (!HasWildcard(part)) {
    prefix += WithoutMarks(part);
    if (!last) return Expand(bucket, prefix + "/", parts, at + 1, walk);
    if (++walk->matches.names_read > walk->most_names) {
      walk->matches.names_read = walk->most_names;
      walk->matches.too_many_names = true;
      return absl::OkStatus();
    }
    const std::string path = PathOf(bucket, prefix);
    const auto identity = Identify(path);
    if (absl::IsNotFound(identity.status())) return absl::OkStatus();
    if (!identity.ok()) return identity.status();
    walk->found(path, *identity);
    walk->matches.paths.push_back(path);
    return absl::OkStatus();
  }
  SLUICE_ASSIGN_OR_RETURN(const Listing listing, List(bucket, prefix + LiteralHead(part), walk));
  if (last) {
    for (const auto& [key, identity] : listing.objects) {
      if (!absl::StartsWith(key, prefix) || !Matches(part, key.substr(prefix.size()))) continue;
      const std::string path = PathOf(bucket, key);
      if (!identity.tag.empty()) walk->found(path, identity);
      walk->matches.paths.push_back(path);
    }
    return absl::OkStatus();
  }
  for (const std::string& folder : listing.folders) {
    if (!absl::StartsWith(folder, prefix) || folder.size() <= prefix.size()) continue;
    const std::string name = folder.substr(prefix.size(), folder.size() - prefix.size() - 1);
    if (!Matches(part, name)) continue;
    SLUICE_RETURN_IF_ERROR(Expand(bucket, folder, parts, at + 1, walk));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> StoreFiles::NamesIn(const std::string& folder) {
  constexpr size_t kMostNames = 1'000'000;
  SLUICE_ASSIGN_OR_RETURN(const StorePath path, ParseStorePath(folder));
  const std::string prefix = path.key.back() == '/' ? path.key : path.key + "/";
  Walk walk{kMostNames, {}, {}};
  SLUICE_ASSIGN_OR_RETURN(const Listing listing, List(path.bucket, prefix, &walk));
  if (walk.matches.too_many_names) {
    return absl::FailedPreconditionError(
        absl::StrCat("the folder has more than ", kMostNames, " names"));
  }
  std::vector<std::string> names;
  const auto add = [&](absl::string_view key) {
    // Some programs make an object with the name of the folder itself.
    if (absl::ConsumePrefix(&key, prefix) && !key.empty()) names.emplace_back(key);
  };
  for (const auto& [key, identity] : listing.objects) add(key);
  for (const std::string& one : listing.folders) add(absl::StripSuffix(one, "/"));
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  if (names.empty()) return absl::NotFoundError("there is no object below it");
  return names;
}

absl::StatusOr<FileMatches> StoreFiles::Match(
    const std::string& pattern, size_t most_names,
    const std::function<void(const std::string&, const FileIdentity&)>& found) {
  SLUICE_ASSIGN_OR_RETURN(const StorePath path, ParseStorePath(pattern));
  Walk walk{most_names, found, {}};
  // The name of an object, even if it has wildcards.
  const auto named = Identify(pattern);
  if (named.ok()) {
    found(pattern, *named);
    walk.matches.paths = {pattern};
    walk.matches.names_read = std::min<size_t>(1, most_names);
    return std::move(walk.matches);
  }
  const std::vector<std::string> parts = absl::StrSplit(path.key, '/');
  const bool wild = std::any_of(parts.begin(), parts.end(), &HasWildcard);
  if (!wild && WithoutMarks(path.key) == path.key) return named.status();
  // A store that does not let a process list a bucket says of a missing object that it is refused.
  if (!absl::IsNotFound(named.status()) && !absl::IsPermissionDenied(named.status()))
    return named.status();
  SLUICE_RETURN_IF_ERROR(Expand(path.bucket, "", parts, 0, &walk));
  std::sort(walk.matches.paths.begin(), walk.matches.paths.end());
  return std::move(walk.matches);
}

}  // namespace sluice
