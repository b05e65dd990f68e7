// An error about one field of a configuration, which carries the field's path beside the message.
//
// Thread safety:
//   pure functions.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace sluice {

// Attaches the path of the field that `status` is about. Returns `status` unchanged when it is OK
// or has a path already.
absl::Status AtField(const std::string& path, absl::Status status);
// The attached path; "" when there is none.
std::string FieldOf(const absl::Status& status);

}  // namespace sluice
