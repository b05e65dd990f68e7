// The objects of a store that speaks S3's protocol: S3, MinIO, Ceph, R2, OSS, COS and others.
//
// Reads carry If-Match, so that no byte of another version is ever taken.
//
// Thread safety: safe from any thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/places/credentials.h"
#include "common/places/http_transport.h"
#include "common/places/remote_files.h"
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

class StoreFiles : public RemoteFiles {
 public:
  // Both pointers outlive this.
  StoreFiles(StoreAddress address, HttpTransport* transport, CredentialSource* credentials)
      : address_(std::move(address)), transport_(transport), credentials_(credentials) {}

  absl::StatusOr<FileIdentity> Identify(const std::string& path) override;
  absl::StatusOr<std::string> ReadRange(const std::string& path, const FileIdentity& identity,
                                        uint64_t offset, size_t n) override;
  absl::StatusOr<FileMatches> Match(
      const std::string& pattern, size_t most_names,
      const std::function<void(const std::string&, const FileIdentity&)>& found) override;

 private:
  struct Walk;
  struct Listing {
    std::vector<std::pair<std::string, FileIdentity>> objects;  // keys
    std::vector<std::string> folders;                           // prefixes that end in '/'
  };
  // The URL of an object, or of a bucket when the key is empty. `query`: encoded, sorted by name.
  std::string UrlOf(const StorePath& path, const std::string& query) const;
  // Signs and sends; with new credentials once more when the store says that these have ended.
  // *source, when given: where the credentials came from.
  absl::StatusOr<HttpResponse> Send(HttpRequest request, std::string* source);
  // What an answer that is no success means, in words.
  absl::Status Explain(const StorePath& path, const HttpResponse& answer,
                       const std::string& source) const;
  // The names right below `prefix`, as one listing of all its pages.
  absl::StatusOr<Listing> List(const std::string& bucket, const std::string& prefix, Walk* walk);
  absl::Status Expand(const std::string& bucket, std::string prefix,
                      const std::vector<std::string>& parts, size_t at, Walk* walk);

  const StoreAddress address_;
  HttpTransport* const transport_;
  CredentialSource* const credentials_;
};

}  // namespace sluice
