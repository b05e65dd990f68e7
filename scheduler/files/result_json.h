// Encodes result.json, the file about an ended job for checks and scripts.
//
// Format:
// - Integers are JSON numbers, even above 2^53.
// - Doubles have the shortest form that reads back the same; null if not finite or not defined.
// - `eval` is null when nothing was evaluated.
// - `recovery` says what a resumed job continued from; `checkpoints` is null in a job that makes
// none.
// - `instance` is that of the job's curves.jsonl. Job ids occur again in other clusters.
// - `data` has shares of the first epoch's examples; its features have the names in `config`.
//
// Thread safety: pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/scheduler.pb.h"

namespace sluice {

// `kept_checkpoints`: of a job that is done, NamesOfCheckpoints of its folder. Of another one,
// `finished_checkpoints`: what the result that it replaces lists (FinishedCheckpoints). `instance`:
// the job's first one.
std::string ResultJson(const JobResult& result, const JobConfig& config = JobConfig(),
                       const std::vector<std::string>& kept_checkpoints = {},
                       const std::vector<std::string>& finished_checkpoints = {},
                       uint64_t instance = 0);

// Changes the `status` of a result that is done to `replaced`, with a message, and leaves all else
// as it is. Returns other texts unchanged.
std::string MarkReplaced(const std::string& result_json, const std::string& by_job);

}  // namespace sluice
