// Writes a status message as JSON, for `sluice status --json` and the admin pages.
//
// Fields keep their proto names, and zeros are written. Undefined metrics of an evaluation are
// null; protobuf's own mapping would omit them or write "NaN".
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace google::protobuf {
class Message;
}

namespace sluice {

// INTERNAL when the message has no JSON form.
absl::StatusOr<std::string> StatusJson(const google::protobuf::Message& message);

}  // namespace sluice
