// Reads and writes saved models (format: proto/model.proto).
//
// A model is written by many (each pserver its shards) and finished by one, who writes the
// manifest. Memory: 16 bytes a row of the shard for WriteShardFile, and a few MiB; a few MiB for
// VisitShards; at most 64 MiB, or 16 KiB a shard where that is more, for ModelDigest and
// FinishModel. Thread safety: functions may run on many threads; of one folder, FinishModel after
// all WriteShardFile.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/env.h"
#include "common/saved_model/shard_image.h"
#include "common/table/table_layout.h"
#include "proto/model.pb.h"

namespace sluice {

// Of the format: what FinishModel writes. ReadManifest accepts 1, too.
inline constexpr uint32_t kModelVersion = 2;

// A piece of a shard of a table, in memory.
struct ShardValues {
  uint64_t first_element = 0;  // dense
  std::vector<uint64_t> keys;  // sparse
  std::vector<float> weights;  // dense: [elements]; sparse: [keys.size()][dim]
};

// Writes DIR/<table>-<shard>.shard, fsynced. Creates DIR. INVALID_ARGUMENT: see shard_image.h;
// errors of the cut are returned as they are.
absl::StatusOr<SavedFile> WriteShardFile(const std::string& dir, const TableLayout& table,
                                         uint32_t shard, ShardCut* cut, Env* env = Env::Real());
// The same of a whole shard that is in memory. INVALID_ARGUMENT when the values do not fit the
// layout, or the keys do not ascend.
absl::StatusOr<SavedFile> WriteShardFile(const std::string& dir, const TableLayout& table,
                                         uint32_t shard, const ShardValues& values,
                                         Env* env = Env::Real());
// A whole shard; rows are in the order of the file. DATA_LOSS names the file when it is damaged or
// missing.
absl::StatusOr<ShardValues> ReadShardFile(const std::string& dir, const TableConfig& table,
                                          const SavedFile& file, uint32_t* shard,
                                          Env* env = Env::Real());

// Adds the digest (of the files' contents, all of which it checks), then writes job.textproto and
// MANIFEST (by rename, fsync of file and folder). Then shard files that the manifest does not list
// are removed from DIR. DATA_LOSS names a shard that was not written.
absl::StatusOr<Manifest> FinishModel(const std::string& dir, const JobConfig& job,
                                     Manifest manifest, Env* env = Env::Real());

// NOT_FOUND when DIR is no model; says so when it is an unfinished one. DATA_LOSS when it is
// damaged.
absl::StatusOr<Manifest> ReadManifest(const std::string& dir, Env* env = Env::Real());
absl::StatusOr<JobConfig> ReadModelJob(const std::string& dir, Env* env = Env::Real());

// Calls `visit` for all values of table `name`, by shard, in pieces of at most about 1 MiB; once
// with an empty piece for a shard that has no values.
absl::Status VisitShards(const std::string& dir, const Manifest& manifest, const std::string& name,
                         const std::function<absl::Status(uint32_t shard, ShardValues)>& visit,
                         Env* env = Env::Real());

// Rows or elements of table `name`, as the headers of its files say, which are checked.
absl::StatusOr<uint64_t> CountRecords(const std::string& dir, const Manifest& manifest,
                                      const std::string& name, Env* env = Env::Real());

// SHA-256 (hexadecimal) over tables by name, little-endian f32 weights by index or ascending key
// (with the key). It does not depend on the number of shards.
absl::StatusOr<std::string> ModelDigest(const std::string& dir, const Manifest& manifest,
                                        Env* env = Env::Real());

}  // namespace sluice
