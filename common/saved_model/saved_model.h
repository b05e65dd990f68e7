// Reads and writes saved models (format: proto/model.proto).
//
// A model is written by many (each pserver its shards), prepared by one, who writes the manifest
// beside the one in force, and committed by one rename. The files of a save carry its id in their
// names, so that until the commit the earlier model of the folder stays whole, and a crash at any
// moment leaves the one or the other. Memory: 16 bytes a row of the shard for WriteShardFile, and a
// few MiB; a few MiB for VisitShards; at most 64 MiB, or 16 KiB a shard where that is more, for
// ModelDigest and PrepareModel. Thread safety: functions may run on many threads; of one save,
// PrepareModel after all WriteShardFile.
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

// Of the format: what PrepareModel writes. ReadManifest accepts 1, too.
inline constexpr uint32_t kModelVersion = 2;

// A piece of a shard of a table, in memory.
struct ShardValues {
  uint64_t first_element = 0;  // dense
  std::vector<uint64_t> keys;  // sparse
  std::vector<float> weights;  // dense: [elements]; sparse: [keys.size()][dim]
};

// Writes the shard's file (ShardFileName), fsynced. Creates DIR. `save_id` is another for each save
// of the folder. INVALID_ARGUMENT: see shard_image.h; errors of the cut are returned as they are.
absl::StatusOr<SavedFile> WriteShardFile(const std::string& dir, const TableLayout& table,
                                         uint32_t shard, ShardCut* cut, Env* env = Env::Real(),
                                         const std::string& save_id = "");
// The same of a whole shard that is in memory. INVALID_ARGUMENT when the values do not fit the
// layout, or the keys do not ascend.
absl::StatusOr<SavedFile> WriteShardFile(const std::string& dir, const TableLayout& table,
                                         uint32_t shard, const ShardValues& values,
                                         Env* env = Env::Real(), const std::string& save_id = "");
// A whole shard; rows are in the order of the file. DATA_LOSS names the file when it is damaged or
// missing.
absl::StatusOr<ShardValues> ReadShardFile(const std::string& dir, const TableConfig& table,
                                          const SavedFile& file, uint32_t* shard,
                                          Env* env = Env::Real());

// Adds the digest (of the files' contents, all of which it checks), then writes the job's file and
// the manifest of the save, durably and beside those in force. DATA_LOSS names a shard that was not
// written.
absl::StatusOr<Manifest> PrepareModel(const std::string& dir, const JobConfig& job,
                                      Manifest manifest, Env* env = Env::Real(),
                                      const std::string& save_id = "");
// Puts a prepared save in force, in one rename. Then files of the format that the manifest does not
// list are removed from DIR, as far as they can be. NOT_FOUND when the save is not prepared.
absl::Status CommitModel(const std::string& dir, Env* env = Env::Real(),
                         const std::string& save_id = "");
// Removes what a save wrote that is not to be committed. The model in force stays.
void DiscardModel(const std::string& dir, Env* env, const std::string& save_id);
// PrepareModel, then CommitModel.
absl::StatusOr<Manifest> FinishModel(const std::string& dir, const JobConfig& job,
                                     Manifest manifest, Env* env = Env::Real(),
                                     const std::string& save_id = "");

// NOT_FOUND when DIR is no model; says so when it is an unfinished one. DATA_LOSS when it is
// damaged.
absl::StatusOr<Manifest> ReadManifest(const std::string& dir, Env* env = Env::Real());
// The configuration of the job that made the model. DATA_LOSS when it is not the one saved.
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
