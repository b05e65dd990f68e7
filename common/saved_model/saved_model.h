// Reads and writes saved models.
//
// A save has three steps. Each pserver writes its shards. Then one process prepares the model: it
// writes the new manifest next to the one in force. Then one rename commits it; on a place without
// renames (a store), one conditional write (Env::Publish) of the manifest does. The names of a
// save's files contain its id, so the earlier model in the folder stays whole until the commit. A
// crash at any moment leaves either the old model or the new one.
//
// Format: proto/model.proto.
//
// Memory: WriteShardFile needs 16 bytes per row of the shard and a few MiB. VisitShards needs a few
// MiB. ModelDigest and PrepareModel need at most 64 MiB, or 16 KiB per run where that is more.
//
// Thread safety: the functions may run on many threads. Within one save, PrepareModel comes after
// all calls of WriteShardFile.
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

// The name of a rank's own file in a checkpoint: worker-RANK.SAVE_ID.
std::string WorkerFileName(uint32_t rank, const std::string& save_id);
bool IsWorkerFileName(const std::string& name);

// A piece of a shard of a table, in memory.
struct ShardValues {
  uint64_t first_element = 0;  // dense
  std::vector<uint64_t> keys;  // sparse
  std::vector<float> weights;  // dense: [elements]; sparse: [keys.size()][dim]
};

// Starts a new file of a save, and makes the folder if it is missing. Another process whose part of
// the same save has failed may remove the folder while it is empty.
absl::StatusOr<std::unique_ptr<NewFile>> StartFileIn(const std::string& dir,
                                                     const std::string& name, Env* env);
// Writes the shard's file (ShardFileName) durably, and creates DIR. Each save into a folder has its
// own `save_id`. INVALID_ARGUMENT: see shard_image.h. Errors of the cut are returned unchanged.
absl::StatusOr<SavedFile> WriteShardFile(const std::string& dir, const TableLayout& table,
                                         uint32_t shard, ShardCut* cut, Env* env,
                                         const std::string& save_id = "");
// The same for a whole shard in memory. INVALID_ARGUMENT when the values do not fit the layout or
// the keys do not ascend.
absl::StatusOr<SavedFile> WriteShardFile(const std::string& dir, const TableLayout& table,
                                         uint32_t shard, const ShardValues& values, Env* env,
                                         const std::string& save_id = "");

// Checks the contents of all files and adds their digest to the manifest. Then writes the job's
// file and the manifest of the save, durably and next to the ones in force. DATA_LOSS names a shard
// that was not written.
absl::StatusOr<Manifest> PrepareModel(const std::string& dir, const JobConfig& job,
                                      Manifest manifest, Env* env, const std::string& save_id = "");
// The same for a checkpoint, whose manifest has no digest: checks that the files exist with their
// sizes, and reads none of them.
absl::Status PrepareCheckpoint(const std::string& dir, const JobConfig& job, Manifest manifest,
                               Env* env, const std::string& save_id);
// Puts a prepared save in force with one rename or publication. Then removes from DIR, as far as it
// can, the files of other saves, which the manifest does not list. NOT_FOUND when the save is not
// prepared. ABORTED: somebody else has written the manifest of a folder on a store meanwhile.
// `owned` tells whether the caller still has a folder that cannot be locked: an error of it is
// returned instead of the publication, and later nothing is removed. Null: nobody else writes
// there.
absl::Status CommitModel(const std::string& dir, Env* env, const std::string& save_id = "",
                         const std::function<absl::Status()>& owned = nullptr);
// Gives up the files that killed processes have begun for saves and not finished
// (Env::GiveUpFiles): in DIR, or in those folders right below it that `holds_saves`. The caller
// knows that no save is being made there.
absl::Status GiveUpSaves(const std::string& dir,
                         const std::function<bool(const std::string&)>& holds_saves, Env* env);
// Removes the files of a save that will not be committed. The model in force stays.
void DiscardModel(const std::string& dir, Env* env, const std::string& save_id);
// The saves in DIR that are prepared and not in force.
struct PreparedSave {
  std::string save_id;
  Manifest manifest;
};
std::vector<PreparedSave> ListPrepared(const std::string& dir, Env* env);
// OK when the save is prepared or in force, and its files exist with their sizes. NOT_FOUND or
// DATA_LOSS say what is missing.
absl::Status CheckSaved(const std::string& dir, const std::string& save_id, Env* env);
// Removes the model or checkpoint in DIR, its manifest first, the files of unfinished saves, and
// then DIR if nothing else is in it. Leaves the files of others alone. Removes as much as it can.
void RemoveModel(const std::string& dir, Env* env);
// PrepareModel, then CommitModel.
absl::StatusOr<Manifest> FinishModel(const std::string& dir, const JobConfig& job,
                                     Manifest manifest, Env* env, const std::string& save_id = "");

// DATA_LOSS names the first file that does not exist with its size, or whose name no save gives to
// a shard or rank; nothing outside of DIR is looked at. The job's file is not checked.
absl::Status CheckSizes(const std::string& dir, const Manifest& manifest, Env* env);

// NOT_FOUND when DIR is not a model; the message says when it is an unfinished one. DATA_LOSS when
// the manifest is damaged.
absl::StatusOr<Manifest> ReadManifest(const std::string& dir, Env* env);
// The configuration of the job that made the model. DATA_LOSS when the file is missing or is not
// the one that was saved.
absl::StatusOr<JobConfig> ReadModelJob(const std::string& dir, Env* env);

// Calls `visit` with all values of table `name`, shard by shard, in pieces of at most about 1 MiB.
// A shard without values is visited once, with an empty piece.
absl::Status VisitShards(const std::string& dir, const Manifest& manifest, const std::string& name,
                         Env* env,
                         const std::function<absl::Status(uint32_t shard, ShardValues)>& visit);

// The number of rows or elements of table `name`, by the headers of its files, which it checks.
absl::StatusOr<uint64_t> CountRecords(const std::string& dir, const Manifest& manifest,
                                      const std::string& name, Env* env);

// The SHA-256, in hexadecimal, over the tables in the order of their names: little-endian f32
// weights by index, or by ascending key together with the key. It does not depend on the number of
// shards.
absl::StatusOr<std::string> ModelDigest(const std::string& dir, const Manifest& manifest, Env* env);

}  // namespace sluice
