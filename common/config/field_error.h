// An error of one field of a configuration, with the field's path beside the message.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace sluice {

// `status` with the path of the field that it is about; of one that has a path already, or is OK,
// itself.
absl::Status AtField(const std::string& path, absl::Status status);
// "" when the status names none.
std::string FieldOf(const absl::Status& status);

}  // namespace sluice
