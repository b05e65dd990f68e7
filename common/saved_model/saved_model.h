// Reads and writes saved models (format: proto/model.proto).
//
// A model is written by many (each pserver its shards) and finished by one, who writes the manifest.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/table/table_layout.h"
#include "proto/model.pb.h"

namespace sluice {

// One shard of a table, in memory. Sparse rows are sorted by key.
struct ShardValues {
  uint64_t first_element = 0;   // dense
  std::vector<uint64_t> keys;   // sparse
  std::vector<float> weights;   // dense: [elements]; sparse: [keys.size()][dim]
};

// Writes DIR/<table>-<shard>.shard, fsynced. Creates DIR.
absl::StatusOr<SavedFile> WriteShardFile(const std::string& dir, const TableLayout& table, uint32_t shard,
                                         const ShardValues& values);
// DATA_LOSS names the file when it is damaged.
absl::StatusOr<ShardValues> ReadShardFile(const std::string& dir, const TableConfig& table, const SavedFile& file,
                                          uint32_t* shard);

// Adds the digest (of the files' contents), then writes job.textproto and MANIFEST (by rename, fsync of
// file and folder). Files that the manifest does not list are removed from DIR.
absl::StatusOr<Manifest> FinishModel(const std::string& dir, const JobConfig& job, Manifest manifest);

// NOT_FOUND when DIR is no model; says so when it is an unfinished one.
absl::StatusOr<Manifest> ReadManifest(const std::string& dir);
absl::StatusOr<JobConfig> ReadModelJob(const std::string& dir);

// Calls `visit` for every shard file of table `name`. Reads and checks one file at a time.
absl::Status VisitShards(const std::string& dir, const Manifest& manifest, const std::string& name,
                         const std::function<absl::Status(uint32_t shard, ShardValues)>& visit);

// SHA-256 over tables by name, little-endian f32 weights by index or ascending key (with the key).
absl::StatusOr<std::string> ModelDigest(const std::string& dir, const Manifest& manifest);

}  // namespace sluice
