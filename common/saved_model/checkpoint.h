// Folders of checkpoints: ROOT/step-N, each a saved model with optimizer state and a
// CheckpointState.
//
// A checkpoint is made like a model (saved_model.h): pservers write the shard files, then one
// process writes the job's file and the manifest, and one rename puts them in force. A folder
// without a valid MANIFEST is not a checkpoint. Saving the same step again leaves the earlier files
// whole until that rename.
//
// Invariants:
// - A folder holds `job.textproto`, the name that only a complete save gives to the job's file,
//   together with MANIFEST, or with MANIFEST.prepared while it is removed. Without either it has
//   lost its manifest: it is damaged, unlike the folder of a save that was cut short.
//
// Thread safety: free functions, safe from any thread. Only one process commits into a ROOT.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/env.h"
#include "proto/config.pb.h"
#include "proto/model.pb.h"

namespace sluice {

// ROOT/step-N.
std::string CheckpointFolder(const std::string& root, uint64_t step);
// Whether a folder of this name is one that CheckpointFolder has named.
bool IsCheckpointName(absl::string_view name);
// The save_id of a job's checkpoint `number`. All processes derive the same one; no two saves into
// a folder share it.
std::string CheckpointSaveId(uint64_t instance, uint64_t number);
// The save_id of the model that this instance of a job saves at its end.
std::string ModelSaveId(uint64_t instance);
// The save_id of the model that it saves after `epoch` (from 0), with checkpoint.save: BEST.
std::string EpochSaveId(uint64_t instance, uint32_t epoch);
// True for the ids under which this instance of the job saves models. Pservers accept no others.
bool IsModelSaveId(const JobConfig& job, uint64_t instance, const std::string& save_id);
// The inverse of CheckpointSaveId for one instance: the number whose save_id this would be. An id
// that another instance has made gives some huge number. Returns nullopt for a text that is no such
// id.
std::optional<uint64_t> CheckpointNumber(uint64_t instance, const std::string& save_id);

// The save_id of the save that has made a checkpoint; empty: its manifest does not say so.
std::string SaveIdOfCheckpoint(const Manifest& manifest);

struct CheckpointInfo {
  std::string dir;
  uint64_t step = 0;
  Manifest manifest;
  // The save_ids of the damaged checkpoints that ChooseCheckpoint skipped, with allow_older.
  std::vector<std::string> damaged;
};

// The checkpoints under ROOT, newest first: by the time of their cuts, then by their steps. So a
// job that starts again from an earlier step makes newer ones. Folders that are not named step-N,
// or have no MANIFEST, or hold a model without state, are left out. Folders whose manifest is
// damaged or lost are described in *damaged instead (may be null). An absent ROOT has none.
std::vector<CheckpointInfo> ListCheckpoints(const std::string& root, Env* env,
                                            std::vector<absl::Status>* damaged);

// The folders step-N under ROOT without a manifest, by name: checkpoints that are being written or
// removed, or whose writing or removal was cut short.
std::vector<std::string> ListUnfinishedCheckpoints(const std::string& root, Env* env);

// Checks that all files exist with their sizes, and the checksums of the manifest and the job's
// file. DATA_LOSS names the first file that is damaged or missing.
absl::Status CheckCheckpoint(const CheckpointInfo& checkpoint, Env* env);

// Reads every byte of the checkpoint in DIR. Calls `damage` with the name of each damaged or
// missing file (may be null) and returns DATA_LOSS that names the first one. NOT_FOUND when DIR is
// not a checkpoint. If `not_finite` is not null, it gets a text for each table with values that are
// NaN or infinite. That is no damage, but no job can continue from them.
absl::Status VerifyCheckpoint(
    const std::string& dir, Env* env,
    const std::function<void(const std::string& name, const absl::Status& why)>& damage,
    std::vector<std::string>* not_finite = nullptr);

// The checkpoint to resume from: the newest one, of those that are `wanted` if that is given. A
// folder whose manifest cannot be read is `wanted` when a manifest with only the names of its files
// would be; without any file whose name tells its save, it is.
// NOT_FOUND when there is none. DATA_LOSS names the damaged file of the newest one; with
// `allow_older` damaged ones, and those with values that are not finite (every byte is read), are
// skipped instead, each with an entry in *skipped, and DATA_LOSS means that none is left. A folder
// whose manifest is damaged or lost counts as newest when its step is the highest.
absl::StatusOr<CheckpointInfo> ChooseCheckpoint(
    const std::string& root, bool allow_older, Env* env, std::vector<std::string>* skipped,
    const std::function<bool(const Manifest&)>& wanted = nullptr);

// The checkpoint that a new job starts from. `dir` is a checkpoint itself, or a folder of
// checkpoints or a job's output folder, which stand for their newest intact one. With `verify`
// every byte of that one is read, and damaged newer ones are described in *skipped (may be null);
// without it the newest one with a readable manifest is taken. A checkpoint that `dir` itself names
// gets CheckCheckpoint only. NOT_FOUND: there is no checkpoint. INVALID_ARGUMENT: `dir` is a model.
// DATA_LOSS names the damaged file.
absl::StatusOr<CheckpointInfo> FindCheckpoint(const std::string& dir, bool verify, Env* env,
                                              std::vector<std::string>* skipped);

// Puts a checkpoint in force, when all its shard files are written: checks their sizes, writes the
// job's file and the manifest (version, job file and checksum are filled in) durably and renames.
// DATA_LOSS names a shard file that is missing. After an error the earlier checkpoint in DIR, if
// any, is whole. `owned`: as for CommitModel.
absl::Status CommitCheckpoint(const std::string& dir, const JobConfig& job, Manifest manifest,
                              Env* env, const std::string& save_id,
                              const std::function<absl::Status()>& owned = nullptr);

// Removes the oldest checkpoints under ROOT beyond `keep` (at least 1), first the manifest, then
// the rest. Those whose save_id is in `damaged` do not count towards `keep`. Touches only files of
// checkpoints in folders step-N: files of others and damaged checkpoints stay. Also removes remains
// of abandoned checkpoints: folders without a manifest below every kept step.
absl::Status RemoveOldCheckpoints(const std::string& root, uint32_t keep, Env* env,
                                  const std::vector<std::string>& damaged = {});

// Removes the checkpoints under ROOT that are not `wanted`, in the same way, unless that would be
// all of them. Also removes what is left of unfinished and half-removed ones, unless a manifest
// with only the names of their files is `wanted`.
absl::Status RemoveOtherCheckpoints(const std::string& root, Env* env,
                                    const std::function<bool(const Manifest&)>& wanted);

}  // namespace sluice
