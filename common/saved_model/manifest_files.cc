#include "common/saved_model/manifest_files.h"

#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/saved_model/saved_model.h"
#include "common/saved_model/shard_file.h"

namespace sluice {

absl::StatusOr<std::vector<const SavedFile*>> FilesOfTable(const std::string& dir,
                                                           const Manifest& manifest,
                                                           const TableConfig& table) {
  auto damaged = [&](uint32_t shard, absl::string_view what) {
    return absl::DataLossError(absl::StrCat("model ", dir, ": ", ShardFileName(table.name(), shard),
                                            " ", what, "; save the model again"));
  };
  std::map<uint32_t, const SavedFile*> by_shard;
  for (const SavedFile& file : manifest.files()) {
    uint32_t shard = 0;
    if (!ParseShardFileName(file.name(), table.name(), &shard)) continue;
    if (!by_shard.emplace(shard, &file).second) return damaged(shard, "is listed twice");
  }
  // A sparse table's config tells how many shards there must be. A dense table's does not, but its
  // blocks must fill the tensor, which their readers check.
  const size_t shards = table.kind() == TableConfig::SPARSE ? table.num_shards() : by_shard.size();
  std::vector<const SavedFile*> files;
  for (const auto& [shard, file] : by_shard) {
    if (shard != files.size()) return damaged(static_cast<uint32_t>(files.size()), "is not listed");
    if (shard >= shards)
      return damaged(shard, absl::StrCat("is listed, but the table has ", shards, " shards"));
    files.push_back(file);
  }
  if (files.empty() || files.size() < shards) {
    return damaged(static_cast<uint32_t>(files.size()), "is not listed");
  }
  return files;
}

absl::Status CheckManifest(const std::string& path, const Manifest& manifest) {
  if (manifest.version() == 0)
    return absl::DataLossError(absl::StrCat(path, " is damaged: it has no version"));
  if (manifest.version() > kModelVersion) {
    return absl::FailedPreconditionError(absl::StrCat(path, " has version ", manifest.version(),
                                                      "; this program reads versions 1 to ",
                                                      kModelVersion));
  }
  // In version 1 and 2 the digest is the last field of the text, so a truncated text lacks it.
  if (!manifest.has_checkpoint() && manifest.model_digest().size() != 64) {
    return absl::DataLossError(
        absl::StrCat(path, " is damaged: its model_digest is not 64 digits"));
  }
  std::set<std::string> names;
  for (const TableConfig& table : manifest.tables()) {
    if (!names.insert(ShardFileName(table.name(), 0)).second) {
      return absl::DataLossError(
          absl::StrCat(path, " is damaged: table '", table.name(), "' is listed twice"));
    }
    if (table.kind() != TableConfig::DENSE && table.kind() != TableConfig::SPARSE) {
      return absl::DataLossError(
          absl::StrCat(path, " is damaged: table '", table.name(), "' has no kind"));
    }
    SLUICE_RETURN_IF_ERROR(FilesOfTable(path, manifest, table).status());
  }
  return absl::OkStatus();
}

}  // namespace sluice
