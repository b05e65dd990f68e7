// Messages between a pserver and its follower for fuzzers: true ones with changed fields.
//
// Thread safety: free function.
#pragma once

#include <string>

#include "common/wire/frame.h"
#include "tests/fuzz/fuzz.h"

namespace sluice {

// Returns the message with fields merged from the input, and perhaps with another payload.
inline Message ChangedReplica(FuzzedDataProvider* input, const Message& message) {
  auto decoded = DecodeReplica(message);
  std::string payload(decoded->payload.remaining(), '\0');
  decoded->payload.Copy(payload.data(), payload.size());
  ReplicaHeader change;
  if (change.ParseFromString(input->ConsumeRandomLengthString(100)))
    decoded->header.MergeFrom(change);
  if (input->ConsumeBool() && !payload.empty()) {
    const size_t at = input->ConsumeIntegralInRange<size_t>(0, payload.size() - 1);
    payload.replace(at, 8, input->ConsumeRandomLengthString(16));
  }
  return EncodeReplica(decoded->header, {Slice::FromString(payload)});
}

}  // namespace sluice
