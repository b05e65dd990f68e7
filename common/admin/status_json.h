// A status message as JSON: what `sluice status --json` prints and the admin pages serve.
//
// Fields have their names of the proto file and are there also when they are 0. A metric of an
// evaluation that nothing defines is null, where JSON's own form of a message would leave it out or
// write the text "NaN".
//
// Thread safety: pure.
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
