// Jobs in text format, as a script makes them from dictionaries and changes them field by field.
//
// A text that is returned can be written into a job file. It says only what has been said: defaults
// and checks of the whole come when it is submitted.
//
// Thread safety: pure functions.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace sluice {

// Merges `json`, a JobConfig in protobuf's JSON mapping, into `job`, a JobConfig in text format.
// Fields of messages are merged one by one; lists grow. INVALID_ARGUMENT names what is wrong.
absl::StatusOr<std::string> MergeIntoJob(const std::string& job, const std::string& json);

// Sets the field at `path`, as --set of the command line (ApplyOverride in common/config).
absl::StatusOr<std::string> SetInJob(const std::string& job, const std::string& path,
                                     const std::string& value);

// Makes relative paths absolute: those of inputs are relative to `base_dir`, or to the current
// folder if it is empty; those of outputs to the current folder. A nameless job gets `name`.
absl::StatusOr<std::string> ResolveJob(const std::string& job, const std::string& base_dir,
                                       const std::string& name);

}  // namespace sluice
