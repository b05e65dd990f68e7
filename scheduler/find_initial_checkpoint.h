// Finds the checkpoint that a submitted job starts from (JobConfig.initial_checkpoint).
//
// Thread safety: safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/env.h"
#include "proto/config.pb.h"

namespace sluice {

// Replaces config->initial_checkpoint by the folder of the checkpoint that it stands for, and
// checks that the job can start from it. Does nothing when the field is empty. Adds to *warnings
// which damaged checkpoints were passed over, and how the job differs from that of the checkpoint.
// NOT_FOUND: there is no checkpoint. INVALID_ARGUMENT names the table or feature that does not fit.
// DATA_LOSS names the damaged file. Reads files: all of a checkpoint that is chosen in a folder.
absl::Status FindInitialCheckpoint(Env* env, JobConfig* config, std::vector<std::string>* warnings);

}  // namespace sluice
