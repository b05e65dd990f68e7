// The manifest of a saved model: its text, the checks of its contents, and the files that it lists.
//
// Format: textproto, as the job's file next to it. From version 3 on the last line of a manifest is
// `crc32c: N`, the CRC-32C of all bytes before it.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "proto/model.pb.h"

namespace sluice {

// The version of the format that is written. CheckManifest also accepts the earlier ones.
inline constexpr uint32_t kModelVersion = 3;

// The table's files; element i is the file of shard i and points into `manifest`. DATA_LOSS names a
// shard that is missing or listed twice. `dir` is for messages.
absl::StatusOr<std::vector<const SavedFile*>> FilesOfTable(const std::string& dir,
                                                           const Manifest& manifest,
                                                           const TableConfig& table);

// Checks a manifest as far as possible without its shard files. FAILED_PRECONDITION: its version is
// not readable. DATA_LOSS: it is damaged. `path` is for messages.
absl::Status CheckManifest(const std::string& path, const Manifest& manifest);

// DATA_LOSS names `path` and the place when the text cannot be parsed.
absl::Status ParseModelText(const std::string& path, const std::string& text,
                            google::protobuf::Message* message);
absl::StatusOr<std::string> PrintModelText(const std::string& path,
                                           const google::protobuf::Message& message);

// Checks the checksum, which the result does not have, and then the contents (CheckManifest).
absl::StatusOr<Manifest> ParseManifest(const std::string& path, const std::string& text);
// With its checksum.
// REQUIRES: manifest.crc32c() is not set.
absl::StatusOr<std::string> PrintManifest(const std::string& path, const Manifest& manifest);

}  // namespace sluice
