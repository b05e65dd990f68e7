#include "common/places/store_requests.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/places/answer_text.h"

namespace sluice {
namespace {

bool IsRegion(const std::string& text) {
  return !text.empty() && text.size() <= 64 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '-' || c == '_';
         });
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

std::string StoreRequests::UrlOf(const StorePath& path, const std::string& query) const {
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

absl::StatusOr<HttpResponse> StoreRequests::Send(HttpRequest request, std::string* source) const {
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
                           ? "; check the network, and AWS_REGION, or set AWS_ENDPOINT_URL to the "
                             "address of another store"
                           : "; check that the store is running, and that AWS_ENDPOINT_URL is its "
                             "address"));
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

absl::Status StoreRequests::Explain(const StorePath& path, const HttpResponse& answer,
                                    const std::string& source, Use use) const {
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
        "the store refuses to let it be ", use == Use::kRead ? "read" : "written", " (HTTP ",
        answer.status, code.empty() ? "" : " ", code, "); it needs ",
        use == Use::kRead ? "s3:GetObject, and s3:ListBucket for patterns and folders"
                          : "s3:PutObject, s3:DeleteObject and s3:AbortMultipartUpload",
        from));
  }
  if (answer.busy()) {
    return absl::UnavailableError(
        absl::StrCat(where, " is busy (HTTP ", answer.status, code.empty() ? "" : " ", code, ")"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat(where, " answered with HTTP ", answer.status, code.empty() ? "" : " ", code));
}

}  // namespace sluice
