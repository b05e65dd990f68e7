// The requests that pservers have not answered yet.
//
// A request carries a send of the window, something of an operation, or both. It is forgotten when
// it is answered, refused or lost with its stream; then the window and the operation hear what
// became of it.
//
// Thread safety: guarded by the owner's lock, as are the window, the routes and the operations.
//
// Memory: operations whose last reference a request held go to the owner's garbage.
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
#include "client/route_map.h"
#include "client/send_window.h"

namespace sluice {

class RequestTable {
 public:
  // All outlive the table. A message may have at most `max_message_bytes`; 0: no limit.
  RequestTable(const ShardIndex* index, const RouteMap* routes, SendWindow* window,
               uint64_t max_message_bytes);

  // The messages of a new request to `link`: the parts of `send`, and all that can be asked there
  // for `op`. Either may be absent. INVALID_ARGUMENT when a message would be too long.
  absl::StatusOr<std::vector<Message>> Begin(uint32_t link, std::optional<Delivery::Send> send,
                                             std::shared_ptr<PullOperation> op);

  // False for an answer to nothing: the request was lost with an earlier stream.
  bool Has(uint64_t id, uint32_t link) const;
  // The next three need a request that is there. The operation it carries something of, unless
  // the caller has given that up; else null.
  std::shared_ptr<PullOperation> OperationOf(uint64_t id) const;
  // Keeps the errors and counts of one message of the answer. Returns the last error as a sentence;
  // "": none.
  std::string Note(uint64_t id, const ReplyHeader& header);
  struct Outcome {
    absl::Status status;    // as of Delivery::OnReply
    bool left_out = false;  // parts of a pull are missing and wait for a route
  };
  // The answer is complete.
  Outcome Finish(uint64_t id, Garbage* garbage);
  // The pserver refused the request because of its generation: what it carried waits for a route.
  void Refuse(uint64_t id, Garbage* garbage);
  // The stream of `link` has broken: what its requests carried is needed again.
  void LoseAll(uint32_t link, Garbage* garbage);

 private:
  struct Request {
    uint32_t link = 0;
    std::optional<Delivery::Send> send;
    std::vector<Delivery::Error> errors;
    std::shared_ptr<PullOperation> op;
    bool pulls = false;
    uint64_t others = 0;
  };

  const ShardIndex* const index_;
  const RouteMap* const routes_;
  SendWindow* const window_;
  const uint64_t max_message_bytes_;
  std::unordered_map<uint64_t, Request> requests_;
  uint64_t next_id_ = 1;
};

}  // namespace sluice
