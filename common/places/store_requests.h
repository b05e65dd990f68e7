// Requests to a store that speaks S3's protocol: where it is, signatures, and its refusals in
// words.
//
// Thread safety: safe from any thread.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/places/credentials.h"
#include "common/places/http_transport.h"
#include "common/places/url.h"

namespace sluice {

// Where a store is, and how requests to it look.
struct StoreAddress {
  std::string endpoint;  // "http[s]://HOST[:PORT]"; "" for Amazon's of the region
  std::string region = "us-east-1";
  bool virtual_hosts = false;  // with an endpoint: BUCKET.HOST instead of HOST/BUCKET
};
// From AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, AWS_REGION or AWS_DEFAULT_REGION,
// AWS_S3_ADDRESSING_STYLE (path or virtual), and the profile's settings. INVALID_ARGUMENT names the
// variable.
absl::StatusOr<StoreAddress> StoreAddressOf(const ReadVariable& variable,
                                            const std::map<std::string, std::string>& profile);

class StoreRequests {
 public:
  // Both pointers outlive this.
  StoreRequests(StoreAddress address, HttpTransport* transport, CredentialSource* credentials)
      : address_(std::move(address)), transport_(transport), credentials_(credentials) {}

  // The URL of an object, or of a bucket when the key is empty. `query`: encoded, sorted by name.
  std::string UrlOf(const StorePath& path, const std::string& query) const;
  // Signs and sends; with new credentials once more when the store says that these have ended.
  // *source: where the credentials came from.
  absl::StatusOr<HttpResponse> Send(HttpRequest request, std::string* source) const;
  // Says in words what an unsuccessful answer means. `use`: the request was a read or a write.
  enum class Use { kRead, kWrite };
  absl::Status Explain(const StorePath& path, const HttpResponse& answer, const std::string& source,
                       Use use = Use::kRead) const;

 private:
  const StoreAddress address_;
  HttpTransport* const transport_;
  CredentialSource* const credentials_;
};

}  // namespace sluice
