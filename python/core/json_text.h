// Messages from JSON, as a script writes them in dictionaries.
//
// protobuf's own errors name types of its own and neither the choices nor, in lists, the place.
// These name the path of the field, the value, and what there is to choose from.
//
// Thread safety: pure functions.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "google/protobuf/message.h"

namespace sluice {

// Merges `json`, in protobuf's JSON mapping, into `message`, whose lists grow. INVALID_ARGUMENT
// begins with `name` and the field's path, such as "the job: data.format: ...".
absl::Status ParseJson(const std::string& json, const std::string& name,
                       google::protobuf::Message* message);

}  // namespace sluice
