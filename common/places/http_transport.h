// The seam to the network: sends one HTTP request and returns its answer.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace sluice {

// The credentials, region and service with which a request is signed (AWS Signature Version 4).
// Never part of a message.
struct RequestSignature {
  std::string access_key, secret_key, session_token, region, service;
};

struct HttpRequest {
  std::string method = "GET";  // GET, HEAD, PUT, POST or DELETE
  // With its path and query encoded as EncodeUrlPath and EncodeUrlValue do, parameters by name.
  std::string url;
  std::vector<std::string> headers;  // "Name: value"
  std::string body;
  std::optional<RequestSignature> signature;  // none: not signed
  size_t most_bytes = 8 << 20;                // of the answer's body
  size_t range_bytes = 0;  // of an answer with a part of a file (206), where it is known
  // To a service that gives a machine or a container its credentials: its address is link-local, no
  // proxy leads to it, and its connection serves no other request. All other requests refuse such
  // addresses.
  bool to_metadata_service = false;
  absl::Duration connect_time = absl::Seconds(10);
  // An answer that brings fewer than 1,000 bytes a second for so long has failed.
  absl::Duration quiet_time = absl::Seconds(20);
};

struct HttpResponse {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  // The place may answer later.
  bool busy() const { return status == 408 || status == 429 || status >= 500; }
  // "" when there is none.
  std::string Header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
};

// Thread safety: safe from any thread.
class HttpTransport {
 public:
  virtual ~HttpTransport() = default;
  // Follows no redirect. UNAVAILABLE: no answer, or not all of it; another try may go well.
  // Other codes are final. Messages name the host and the reason.
  virtual absl::StatusOr<HttpResponse> Send(const HttpRequest& request) = 0;
};

}  // namespace sluice
