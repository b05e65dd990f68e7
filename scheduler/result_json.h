// result.json: what checks and scripts read of an ended job (shape: design section 12).
//
// Integers are JSON numbers, also above 2^53; doubles in the shortest form that reads back the
// same; what is not finite is null. `eval` is null where nothing was evaluated. Thread safety:
// pure.
#pragma once

#include <string>

#include "proto/scheduler.pb.h"

namespace sluice {

std::string ResultJson(const JobResult& result);

}  // namespace sluice
