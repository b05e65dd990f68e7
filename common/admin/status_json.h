// Writes a status message as JSON, for `sluice status --json` and the admin pages.
//
// Fields keep their proto names, and zeros are written. Numbers are numbers, also those of 64 bits.
// States and roles are words: "running", "pserver". A configuration has the words of the job file
// (ADAM, CSV). Numbers that are not finite, and metrics of an evaluation that are undefined, are
// null.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <string>

namespace google::protobuf {
class Message;
}

namespace sluice {

std::string StatusJson(const google::protobuf::Message& message);

}  // namespace sluice
