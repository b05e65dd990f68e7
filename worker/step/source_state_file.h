// The state of a program's source (SourceStates) in the file that a rank adds to a checkpoint.
//
// Format: that of geo_state_file.h, whose contents are
//
//   u32 epoch, u64 batches, u64 bytes, then the bytes of the program
//
// In Geo the same follows the state of the optimizer (GeoTrainer).
//
// Thread safety: safe from any thread.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "proto/pserver.pb.h"
#include "proto/scheduler.pb.h"
#include "worker/context/job_context.h"
#include "worker/data/source_states.h"
#include "worker/step/geo_state_file.h"

namespace sluice {

absl::Status PutSourceState(const SourceState& state, GeoStateWriter* to);
// DATA_LOSS names the file when it is damaged.
absl::StatusOr<SourceState> GetSourceState(GeoStateReader* from);

// Makes the folder if need be. Errors of the Env.
absl::StatusOr<SavedFile> WriteSourceState(const SourceState& state, Env* env,
                                           const std::string& directory, uint32_t rank,
                                           const std::string& save_id);
// `file`: as WriteSourceState has returned it. DATA_LOSS names the file when it is damaged.
absl::StatusOr<SourceState> ReadSourceState(Env* env, const std::string& directory,
                                            const SavedFile& file);

// Adds such a file to a rank's part of a checkpoint: the newest state from which the source can
// give batch number `batches` (from 0) of the epoch. Nothing without such a state. Errors of the
// Env.
absl::Status AddSourceState(const JobContext& context, uint32_t epoch, uint64_t batches,
                            const std::string& directory, const std::string& save_id,
                            WorkerState* part);

}  // namespace sluice
