// Writes and removes the objects of a store that speaks S3's protocol.
//
// Every request may be sent again, as RetryingTransport does when a reply is lost: it carries the
// whole object or a numbered part of one, so doing it twice is doing it once. A conditional write
// whose first try succeeded unseen is refused the second time; then the object is read back, and
// equal bytes are success.
//
// A file of more than one part is uploaded in parts, and appears when all are there. Parts of a
// process that was killed stay, unseen, until somebody gives the upload up.
//
// Thread safety: safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/env.h"
#include "common/base/file_identity.h"
#include "common/places/store_files.h"
#include "common/places/store_requests.h"

namespace sluice {

class StoreWriter {
 public:
  // `files` of the same store; it outlives this, as the pointers do. `part_bytes`: of an upload in
  // parts, but the last.
  StoreWriter(StoreAddress address, HttpTransport* transport, CredentialSource* credentials,
              StoreFiles* files, size_t part_bytes = kPartBytes)
      : requests_(std::move(address), transport, credentials),
        files_(files),
        part_bytes_(part_bytes) {}

  // Errors are reasons alone, as those of RemoteFiles.
  absl::Status Put(const std::string& path, std::string bytes);
  // As Env::Publish. UNIMPLEMENTED: the store does not know such conditions.
  absl::StatusOr<FileIdentity> Publish(const std::string& path, absl::string_view bytes,
                                       const std::optional<FileIdentity>& expected);
  // Removes the object, if it is there.
  absl::Status Remove(const std::string& path);
  // Starts a file; an upload in parts that is not finished is given up when it is destroyed.
  // Memory: one part and what is appended at once. `finished` is called at the end of Finish.
  absl::StatusOr<std::unique_ptr<NewFile>> Start(const std::string& path,
                                                 std::function<void()> finished);

  // Gives up the uploads below `folder` whose name there `is_leftover`. UNIMPLEMENTED: the store
  // does not list uploads.
  absl::Status GiveUpUploads(const std::string& folder,
                             const std::function<bool(const std::string&)>& is_leftover);

  // Some stores demand parts of one size, at least 5 MiB, and all take 10,000 at most.
  static constexpr size_t kPartBytes = 16 << 20;
  static constexpr int kMostParts = 10'000;

 private:
  class File;
  // The answer to a PUT of the whole object.
  absl::StatusOr<HttpResponse> SendPut(const StorePath& path, std::string bytes,
                                       const std::string& condition, std::string* source) const;
  // The object has the mark once the upload has ended.
  absl::StatusOr<std::string> BeginUpload(const StorePath& path, const std::string& mark) const;
  absl::StatusOr<bool> IsMarked(const StorePath& path, const std::string& mark) const;
  absl::StatusOr<std::string> PutPart(const StorePath& path, const std::string& upload, int number,
                                      std::string bytes) const;
  // `tags` are those of the parts.
  absl::Status EndUpload(const std::string& path, const std::string& upload,
                         const std::string& mark, const std::vector<std::string>& tags) const;
  absl::Status GiveUp(const StorePath& path, const std::string& upload) const;

  const StoreRequests requests_;
  StoreFiles* const files_;
  const size_t part_bytes_;
};

}  // namespace sluice
