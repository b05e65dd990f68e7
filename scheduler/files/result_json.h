// Encodes result.json, the file about an ended job for checks and scripts.
//
// Format:
// - Integers are JSON numbers, even above 2^53.
// - Doubles have the shortest form that reads back the same; null if not finite or not defined.
// - `eval` is null when nothing was evaluated.
// - `recovery` says what a resumed job continued from; `checkpoints` is null in a job that makes
// none.
// - `data` has shares of the first epoch's examples; its features have the names in `config`.
//
// Thread safety: pure.
#pragma once

#include <string>

#include "proto/scheduler.pb.h"

namespace sluice {

std::string ResultJson(const JobResult& result, const JobConfig& config = JobConfig());

}  // namespace sluice
