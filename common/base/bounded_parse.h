// Parses messages of peers, whose parsed form must not take much more memory than is allowed.
//
// A protobuf of two bytes can make an object of hundreds: an empty sub-message, a string without
// characters, an unknown field. So the wire format is walked first, along the message's descriptor,
// which costs no memory, and each object that the parser would make is counted with its size.
//
// Invariants: the parsed message takes at most the estimate, as SpaceUsedLong counts it. The
// estimate of a message without repetitions of singular fields is at most about twice as large.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace google::protobuf {
class Message;
}

namespace sluice {

// Bytes of memory that `wire` takes once it is parsed into a message of the type of `prototype`.
// RESOURCE_EXHAUSTED: more than `max_bytes`. INVALID_ARGUMENT: it is truncated, malformed, or its
// sub-messages or groups are nested more than 100 deep, as protobuf allows.
absl::StatusOr<size_t> EstimateParsedBytes(absl::string_view wire,
                                           const google::protobuf::Message& prototype,
                                           size_t max_bytes);

// Parses `wire`. INVALID_ARGUMENT: it is no such message, or would take more than `max_bytes` of
// memory; then nothing was parsed, and `message` is as it was.
absl::Status ParseWithin(size_t max_bytes, absl::string_view wire,
                         google::protobuf::Message* message);

}  // namespace sluice
