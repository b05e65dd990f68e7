// Which files of a manifest belong to a table.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/model.pb.h"

namespace sluice {

// The table's files, file i of shard i; they point into `manifest`. DATA_LOSS names a shard that is
// missing or there twice. `dir` is for messages.
absl::StatusOr<std::vector<const SavedFile*>> FilesOfTable(const std::string& dir,
                                                           const Manifest& manifest,
                                                           const TableConfig& table);

// The MANIFEST of `dir` as far as it can be known without its shard files; used by ReadManifest.
absl::Status CheckManifest(const std::string& path, const Manifest& manifest);

}  // namespace sluice
