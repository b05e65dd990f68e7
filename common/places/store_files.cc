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

bool IsRegion(const std::string& text) {
  return !text.empty() && text.size() <= 64 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '-' || c == '_';
         });
}

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

absl::StatusOr<StoreAddress> StoreAddressOf(const ReadVariable& variable,
                                            const std::map<std::string, std::string>& profile) {
  const auto first = [&](std::initializer_list<const char*> names, const char* setting,
                         const char* otherwise) -> std::string {
    for (const char* name : names)
      if (auto value = variable(name)) return *value;
    const auto found = profile.find(setting);
    return found == profile.end() ? otherwise : found->second;
  };
  StoreAddress address;
  address.endpoint = first({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}, "endpoint_url", "");
  while (absl::EndsWith(address.endpoint, "/")) address.endpoint.pop_back();
  address.region = first({"AWS_REGION", "AWS_DEFAULT_REGION"}, "region", "us-east-1");
  if (!IsRegion(address.region)) {
    return absl::InvalidArgumentError(
        absl::StrCat("AWS_REGION is '", address.region, "'; a region looks like us-east-1"));
  }
  const std::string style = first({"AWS_S3_ADDRESSING_STYLE"}, "", "");
  if (!style.empty() && style != "auto" && style != "path" && style != "virtual") {
    return absl::InvalidArgumentError(
        absl::StrCat("AWS_S3_ADDRESSING_STYLE is '", style, "'; give path or virtual"));
  }
  // Without an endpoint the store is Amazon's, which has virtual hosts.
  address.virtual_hosts = style == "virtual" || (address.endpoint.empty() && style != "path");
  if (address.endpoint.empty()) return address;
  const auto parts = ParseWebUrl(address.endpoint);
  if (!parts.ok() || parts->rest != "/") {
    return absl::InvalidArgumentError(
        absl::StrCat("AWS_ENDPOINT_URL must be https://HOST or http://HOST:PORT, without a path: ",
                     parts.ok() ? "it has a path" : parts.status().message()));
  }
  return address;
}

std::string StoreFiles::UrlOf(const StorePath& path, const std::string& query) const {
  std::string endpoint = address_.endpoint;
  if (endpoint.empty()) endpoint = absl::StrCat("https://s3.", address_.region, ".amazonaws.com");
  // A certificate for *.HOST does not cover names with dots before HOST.
  const bool hosted = address_.virtual_hosts && !absl::StrContains(path.bucket, '.');
  std::string url = endpoint;
  if (hosted) {
    url.insert(url.find("://") + 3, absl::StrCat(path.bucket, "."));
  } else {
    absl::StrAppend(&url, "/", path.bucket);
  }
  absl::StrAppend(&url, "/", EncodeUrlPath(path.key));
  if (!query.empty()) absl::StrAppend(&url, "?", query);
  return url;
}

absl::StatusOr<HttpResponse> StoreFiles::Send(HttpRequest request, std::string* source) {
  for (bool again = false;; again = true) {
    SLUICE_ASSIGN_OR_RETURN(Credentials by, credentials_->Get());
    *source = by.source;
    request.signature.reset();
    if (!by.anonymous()) {
      request.signature = RequestSignature{std::move(by.access_key), std::move(by.secret_key),
                                           std::move(by.session_token), address_.region, "s3"};
    }
    absl::StatusOr<HttpResponse> answer = transport_->Send(request);
    if (!answer.ok()) {
      return absl::Status(
          answer.status().code(),
          absl::StrCat(answer.status().message(),
                       address_.endpoint.empty()
                           ? "; AWS_REGION names Amazon's region, AWS_ENDPOINT_URL another store"
                           : "; AWS_ENDPOINT_URL names the store"));
    }
    const std::string code =
        answer->status == 400 || answer->status == 403 ? ErrorCodeOf(answer->body) : "";
    const bool ended = code == "ExpiredToken" || code == "ExpiredTokenException" ||
                       code == "InvalidToken" || code == "TokenRefreshRequired" ||
                       code == "InvalidAccessKeyId";
    if (!ended || again) return answer;
    credentials_->Drop();
  }
}

absl::Status StoreFiles::Explain(const StorePath& path, const HttpResponse& answer,
                                 const std::string& source) const {
  const std::string code = ErrorCodeOf(answer.body);
  const std::string where =
      address_.endpoint.empty() ? absl::StrCat("S3 in ", address_.region) : address_.endpoint;
  const std::string from = absl::StrCat("; the credentials come from ", source);
  std::string region = answer.Header("x-amz-bucket-region");
  if (region.empty()) region = XmlText(answer.body, "Region");
  if ((answer.status == 301 || answer.status == 307 || answer.status == 400) && IsRegion(region) &&
      region != address_.region) {
    return absl::FailedPreconditionError(absl::StrCat("the bucket ", path.bucket,
                                                      " is not in the region ", address_.region,
                                                      "; set AWS_REGION=", region));
  }
  if (code == "NoSuchBucket") {
    return absl::NotFoundError(absl::StrCat("there is no bucket ", path.bucket, " at ", where,
                                            "; correct its name, AWS_ENDPOINT_URL or AWS_REGION"));
  }
  if (answer.status == 404) {
    return absl::NotFoundError(
        absl::StrCat("the bucket ", path.bucket, " has no such object at ", where));
  }
  if (code == "SignatureDoesNotMatch") {
    return absl::PermissionDeniedError(
        absl::StrCat("the secret key is wrong (SignatureDoesNotMatch)", from));
  }
  if (code == "InvalidAccessKeyId") {
    return absl::PermissionDeniedError(
        absl::StrCat(where, " does not know the access key (InvalidAccessKeyId)", from));
  }
  if (code == "RequestTimeTooSkewed") {
    return absl::PermissionDeniedError(
        "the clock of this host differs by more than 15 minutes "
        "from the store's (RequestTimeTooSkewed); set it");
  }
  if (absl::StartsWith(code, "ExpiredToken") || code == "InvalidToken") {
    return absl::PermissionDeniedError(
        absl::StrCat("the session token has ended or is wrong (", code, ")", from));
  }
  if (answer.status == 401 || answer.status == 403) {
    return absl::PermissionDeniedError(absl::StrCat(
        "the store refuses to let it be read (HTTP ", answer.status, code.empty() ? "" : " ", code,
        "); it needs s3:GetObject, and s3:ListBucket for patterns", from));
  }
  if (answer.status == 408 || answer.status == 429 || answer.status >= 500) {
    return absl::UnavailableError(
        absl::StrCat(where, " is busy (HTTP ", answer.status, code.empty() ? "" : " ", code, ")"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat(where, " answered with HTTP ", answer.status, code.empty() ? "" : " ", code));
}

absl::StatusOr<FileIdentity> StoreFiles::Identify(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const StorePath parts, ParseStorePath(path));
  HttpRequest request;
  request.method = "HEAD";
  request.url = UrlOf(parts, "");
  const HttpRequest head = request;
  std::string source;
  SLUICE_ASSIGN_OR_RETURN(HttpResponse answer, Send(request, &source));
  if (answer.status != 200) {
    // An answer to HEAD has no body that says why.
    request.method = "GET";
    request.headers = {"Range: bytes=0-0"};
    request.range_bytes = 1;
    request.most_bytes = kMostErrorBytes;
    SLUICE_ASSIGN_OR_RETURN(HttpResponse why, Send(request, &source));
    // With new credentials, if those of HEAD had ended.
    if (why.status == 206 || why.status == 200) {
      answer = std::move(why);
    } else if (why.status == 416) {  // an object without bytes has no part
      SLUICE_ASSIGN_OR_RETURN(answer, Send(head, &source));
      if (answer.status != 200) return Explain(parts, answer, source);
    } else {
      return Explain(parts, why, source);
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
  request.url = UrlOf(parts, "");
  request.headers = {absl::StrCat("Range: bytes=", offset, "-", offset + n - 1),
                     absl::StrCat("If-Match: ", identity.tag)};
  request.range_bytes = n;
  request.most_bytes = std::max<size_t>(n, kMostErrorBytes);  // an error's text may be longer
  std::string source;
  HttpResponse answer;
  absl::Status part;
  for (int tries = 0; tries < kPartTries; ++tries) {
    SLUICE_ASSIGN_OR_RETURN(answer, Send(request, &source));
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
  if (answer.status != 206 && !whole) return Explain(parts, answer, source);
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
  const std::function<void(const std::string&, const FileIdentity&)>& found;
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
    request.url = UrlOf(
        {bucket, ""}, absl::StrCat(next.empty() ? "" : "continuation-token=", EncodeUrlValue(next),
                                   next.empty() ? "" : "&",
                                   "delimiter=%2F&list-type=2&prefix=", EncodeUrlValue(prefix)));
    std::string source;
    SLUICE_ASSIGN_OR_RETURN(const HttpResponse answer, Send(request, &source));
    if (answer.status != 200) return Explain({bucket, prefix}, answer, source);
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
