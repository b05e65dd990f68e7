// result.json: what checks and scripts read of an ended job (shape: design section 12).
//
// Integers are JSON numbers, also above 2^53; doubles in the shortest form that reads back the
// same; what is not finite or not defined is null. `eval` is null where nothing was evaluated.
// `data` has the shares of the first epoch's examples, with the names of `config`.
//
// Thread safety: pure.
#pragma once

#include <string>

#include "proto/scheduler.pb.h"

namespace sluice {

std::string ResultJson(const JobResult& result, const JobConfig& config = JobConfig());

}  // namespace sluice
