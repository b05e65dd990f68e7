// Reads the objects of a store that speaks S3's protocol: S3, MinIO, Ceph, R2, OSS, COS and others.
//
// Reads carry If-Match, so that no byte of another version is ever taken.
//
// Thread safety: safe from any thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/places/remote_files.h"
#include "common/places/store_requests.h"

namespace sluice {

class StoreFiles : public RemoteFiles {
 public:
  // Both pointers outlive this.
  StoreFiles(StoreAddress address, HttpTransport* transport, CredentialSource* credentials)
      : requests_(std::move(address), transport, credentials) {}

  absl::StatusOr<FileIdentity> Identify(const std::string& path) override;
  absl::StatusOr<std::string> ReadRange(const std::string& path, const FileIdentity& identity,
                                        uint64_t offset, size_t n) override;
  absl::StatusOr<FileMatches> Match(
      const std::string& pattern, size_t most_names,
      const std::function<void(const std::string&, const FileIdentity&)>& found) override;
  // The names of the objects and folders right below a folder, sorted. NOT_FOUND: there is none, so
  // there is no such folder.
  absl::StatusOr<std::vector<std::string>> NamesIn(const std::string& folder);

 private:
  struct Walk;
  struct Listing {
    std::vector<std::pair<std::string, FileIdentity>> objects;  // keys
    std::vector<std::string> folders;                           // prefixes that end in '/'
  };
  // The names right below `prefix`, as one listing of all its pages.
  absl::StatusOr<Listing> List(const std::string& bucket, const std::string& prefix, Walk* walk);
  absl::Status Expand(const std::string& bucket, std::string prefix,
                      const std::vector<std::string>& parts, size_t at, Walk* walk);

  const StoreRequests requests_;
};

}  // namespace sluice
