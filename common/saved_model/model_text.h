// The text files of a saved model: its manifest, and the job's file.
//
// Format: textproto. From version 3 on the last line of a manifest is `crc32c: N`, the CRC-32C of
// all bytes before it.
//
// Thread safety: free functions.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "proto/model.pb.h"

namespace sluice {

// DATA_LOSS names `path` and the place when the text cannot be parsed.
absl::Status ParseModelText(const std::string& path, const std::string& text,
                            google::protobuf::Message* message);
absl::StatusOr<std::string> PrintModelText(const std::string& path,
                                           const google::protobuf::Message& message);

// Checks the checksum, which the result does not have, and then the contents (CheckManifest).
absl::StatusOr<Manifest> ParseManifest(const std::string& path, const std::string& text);
// With its checksum. REQUIRES: manifest.crc32c() is not set.
absl::StatusOr<std::string> PrintManifest(const std::string& path, const Manifest& manifest);

}  // namespace sluice
