// The requests that pservers have not answered yet, and their encoding as messages: the parts of a
// frame, and the parts of a pull.
//
// A request carries parts of a frame, parts of an operation, or both. When it is answered, refused
// or lost, the table tells the send window and the operation, and forgets it.
//
// Thread safety: a RequestTable is guarded by the owner's lock. The same lock guards the window,
// the routes and the operations. EncodeRequest is safe from any thread.
//
// Memory: `garbage` receives the objects that a finished request held, so that the owner can
// destroy them without its lock.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/pull_operation.h"
#include "client/push_frame.h"
#include "client/route_map.h"
#include "client/send_window.h"
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

class RequestTable {
 public:
  // All pointers outlive the table. A message has at most `max_message_bytes`; 0: no limit.
  RequestTable(const ShardIndex* index, const RouteMap* routes, SendWindow* window,
               uint64_t max_message_bytes);

  // Begins a request to `link` and returns its messages. It carries the parts of `send` and
  // everything that `op` can ask there; either may be absent. INVALID_ARGUMENT when a message would
  // be too long.
  absl::StatusOr<std::vector<Message>> Begin(uint32_t link, std::optional<Delivery::Send> send,
                                             std::shared_ptr<PullOperation> op);

  // False when the request was lost with an earlier stream, so that its reply must be ignored.
  bool Has(uint64_t id, uint32_t link) const;
  // Returns the request's operation; null if it has none or the caller has abandoned it.
  // REQUIRES (this and the next three): Has(id, link) for some link.
  std::shared_ptr<PullOperation> OperationOf(uint64_t id) const;
  // Records the errors and counts in one message of the reply. Returns the last error as a
  // sentence; "" if there is none.
  std::string Note(uint64_t id, const ReplyHeader& header);
  struct Outcome {
    absl::Status status;    // of Delivery::OnReply
    bool left_out = false;  // parts of a pull are missing and wait for a route
  };
  // Ends a request whose reply is complete.
  Outcome Finish(uint64_t id, Garbage* garbage);
  // Ends a request that the pserver refused because of its generation. Everything that it carried
  // waits for a route.
  void Refuse(uint64_t id, Garbage* garbage);
  // Ends all requests to `link`, whose stream has broken. Everything that they carried is needed
  // again.
  void LoseAll(uint32_t link, Garbage* garbage);

 private:
  struct Request {
    uint32_t link = 0;
    std::optional<Delivery::Send> send;
    std::vector<Delivery::Error> errors;
    std::shared_ptr<PullOperation> op;
    bool pulls = false;
    uint64_t others = 0, checkpoint = 0;  // the largest in the messages of the reply
  };

  const ShardIndex* const index_;
  const RouteMap* const routes_;
  SendWindow* const window_;
  const uint64_t max_message_bytes_;
  std::unordered_map<uint64_t, Request> requests_;
  uint64_t next_id_ = 1;
};

}  // namespace sluice
