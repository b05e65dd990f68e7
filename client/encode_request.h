// One request as messages: the parts of a frame that go to one pserver, and what a pull asks of it.
//
// Thread safety: free functions.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "client/push_frame.h"
#include "client/shard_index.h"
#include "common/wire/frame.h"

namespace sluice {

// One request to encode. The objects that its pointers name outlive it.
struct OutgoingRequest {
  // request_id and generation, and what the final message alone carries (commit, pull, end_epoch).
  FrameHeader head;
  Message pull_keys;                              // the arrays of keys of the pull
  const PushFrame* frame = nullptr;               // null: no push
  const std::vector<uint32_t>* shards = nullptr;  // the parts of `frame` to send, ascending
  uint32_t link = 0;
};

// The messages in order, cut between parts at kChunkBytes. INVALID_ARGUMENT when one must be longer
// than `max_bytes` (0: no limit), naming the table with the largest part.
absl::StatusOr<std::vector<Message>> EncodeRequest(const ShardIndex& index,
                                                   const OutgoingRequest& request,
                                                   uint64_t max_bytes);

}  // namespace sluice
