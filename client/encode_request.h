// Encodes one request to a pserver as messages: the parts of a frame, and the parts of a pull.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "client/push_frame.h"
#include "client/shard_index.h"
#include "common/wire/frame.h"

namespace sluice {

// One request to encode. The objects behind its pointers outlive it.
struct OutgoingRequest {
  // request_id and generation, and the fields of the final message only: commit, pull, end_epoch.
  FrameHeader head;
  Message pull_keys;                              // the arrays of keys of the pull
  const PushFrame* frame = nullptr;               // null: no push
  const std::vector<uint32_t>* shards = nullptr;  // the parts of `frame` to send, ascending
  uint32_t link = 0;
};

// Returns the messages in order, cut between parts at kChunkBytes. INVALID_ARGUMENT when a message
// would be longer than `max_bytes` (0: no limit). The error names the table with the largest part.
absl::StatusOr<std::vector<Message>> EncodeRequest(const ShardIndex& index,
                                                   const OutgoingRequest& request,
                                                   uint64_t max_bytes);

}  // namespace sluice
