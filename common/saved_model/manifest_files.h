// Finds the files of a table in a manifest, and checks manifests.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/model.pb.h"

namespace sluice {

// The table's files; element i is the file of shard i and points into `manifest`. DATA_LOSS names a
// shard that is missing or listed twice. `dir` is for messages.
absl::StatusOr<std::vector<const SavedFile*>> FilesOfTable(const std::string& dir,
                                                           const Manifest& manifest,
                                                           const TableConfig& table);

// Checks a manifest as far as possible without its shard files. FAILED_PRECONDITION: its version is
// not readable. DATA_LOSS: it is damaged. `path` is for messages.
absl::Status CheckManifest(const std::string& path, const Manifest& manifest);

}  // namespace sluice
