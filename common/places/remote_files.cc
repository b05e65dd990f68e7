#include "common/places/remote_files.h"

#include <utility>

#include "common/base/hash.h"

namespace sluice {

absl::Status AsFileError(const absl::Status& status) {
  const bool passing = absl::IsUnavailable(status) || absl::IsCancelled(status);
  return passing ? absl::InternalError(status.message()) : status;
}

FileIdentity IdentityOfVersion(uint64_t size, std::string tag) {
  FileIdentity identity;
  identity.size = size;
  // Files that were parsed before are found again by this number (ExampleCache).
  identity.changed_ns = static_cast<int64_t>(HashBytes({tag.data(), tag.size()}, size) >> 1 | 1);
  identity.tag = std::move(tag);
  return identity;
}

}  // namespace sluice
