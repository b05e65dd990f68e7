// The seam to a place that is not this machine: files that are named by URLs, read in ranges, and
// never changed.
//
// Thread safety: safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "common/base/file_identity.h"

namespace sluice {

class RemoteFiles {
 public:
  virtual ~RemoteFiles() = default;
  // The version of the file that is there now. Errors are reasons alone: NOT_FOUND,
  // PERMISSION_DENIED, UNAVAILABLE (the network), FAILED_PRECONDITION and INVALID_ARGUMENT.
  virtual absl::StatusOr<FileIdentity> Identify(const std::string& path) = 0;
  // The bytes [offset, offset + n) of that version. REQUIRES: n > 0, and they are in the file.
  // FAILED_PRECONDITION: another version is there.
  virtual absl::StatusOr<std::string> ReadRange(const std::string& path,
                                                const FileIdentity& identity, uint64_t offset,
                                                size_t n) = 0;
  // As Env::Match. Calls `found` with each file whose version the search tells.
  virtual absl::StatusOr<FileMatches> Match(
      const std::string& pattern, size_t most_names,
      const std::function<void(const std::string& path, const FileIdentity&)>& found) = 0;
};

// The same as an error of a file: a job must end of it, and not wait as it would for a member of
// the cluster that gives no answer (UNAVAILABLE).
absl::Status AsFileError(const absl::Status& status);

// The identity of a version that a place names with `tag`.
FileIdentity IdentityOfVersion(uint64_t size, std::string tag);

}  // namespace sluice
