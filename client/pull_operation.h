// What one Ticket waits for: values of shards (pull, exchange) and words to pservers (commit, end
// of epoch).
//
// A piece is the part of one shard. Its values are copied from the reply's slices to the caller's
// array without a lock: a piece is claimed (kWriting) first, and whoever gives the operation up
// waits until `writers` is 0. Thread safety: guarded by the client's lock, but for the copying.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client/parameter_client.h"
#include "client/shard_index.h"
#include "common/wire/frame.h"

namespace sluice {

struct PullOperation {
  enum class State : uint8_t {
    kNeeded,      // to be sent
    kNeedsRoute,  // to be sent after a route was fetched
    kInFlight,    // asked for by `request`
    kWriting,     // its values are being copied
    kDone,
  };
  struct Piece {
    uint32_t flat = 0;
    uint32_t rows = 0;
    Slice keys;
    float* values = nullptr;  // null: read and dropped
    State state = State::kNeeded;
    uint64_t request = 0;
  };
  struct Control {  // commit or end_epoch to one link
    uint32_t link = 0;
    State state = State::kNeeded;
    uint64_t request = 0;
  };

  std::string what;  // "pull for step 12"
  // Pieces are asked for once frame `after` has been sent to their shard; an exchange: once it is
  // acknowledged and the answer to it left the piece out.
  uint64_t after = 0;
  bool exchange = false;
  bool evaluation = false;
  uint64_t for_push = 0;  // Pull.for_push
  uint64_t applied_sequence = 0;
  uint64_t commit_sequence = 0;  // 0: no commit
  bool end_epoch = false;
  uint32_t epoch = 0;

  std::vector<Piece> pieces;
  std::vector<uint32_t> piece_of;  // by flat shard; ShardIndex::kNone: not asked for
  std::vector<Control> controls;
  std::vector<uint64_t> others;  // by link, 0 where it did not answer

  absl::Status status;  // it could not be started
  bool abandoned = false;
  int writers = 0;

  bool Done() const;
};

// The pieces of a request; empty sparse parts are left out. INVALID_ARGUMENT as in push_frame.h.
absl::StatusOr<std::shared_ptr<PullOperation>> MakePull(const ShardIndex& index,
                                                        const PullRequest& request);
// A pull of everything, of no sparse rows and with the dense values dropped: answered when all is
// applied.
std::shared_ptr<PullOperation> MakeBarrier(const ShardIndex& index);

// Where the values of one reply go: n values of wire_bytes each, in the payload's order.
struct Destination {
  uint32_t flat = 0;
  uint32_t piece = ShardIndex::kNone;  // kNone: skip
  size_t values = 0;
};
// Claims the pieces of `op` (null: none) that `request` asked for. INTERNAL when header and payload
// contradict each other or what was asked for.
absl::StatusOr<std::vector<Destination>> ClaimPieces(const ShardIndex& index,
                                                     const DecodedReply& reply, uint64_t request,
                                                     PullOperation* op);
// Copies them; no lock needed. DATA_LOSS when a value is not finite.
absl::Status CopyValues(const ShardIndex& index, const std::vector<Destination>& destinations,
                        const PullOperation* op, PayloadReader* payload);

}  // namespace sluice
