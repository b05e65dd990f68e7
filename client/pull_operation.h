// The work that one ticket waits for.
//
// A piece is the values of one shard (pull, exchange). A control is one pserver's copy of a commit
// or of the end of an epoch. Their states:
// - needed: no request asks for it;
// - needs route: a pserver refused it or left it out, and it becomes needed with the next route;
// - in flight: one request asks for it;
// - writing (pieces only): its values are being copied to the caller's array;
// - done.
//
// Values are copied without the lock, between BeginWrite and EndWrite. After Abandon, the caller
// may free its arrays once writing() is false.
//
// OperationTable keeps the operations that callers hold tickets for.
//
// Thread safety: guarded by the owner's lock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/delivery.h"
#include "client/route_map.h"
#include "client/shard_index.h"
#include "common/wire/frame.h"

namespace sluice {

class PullOperation {
 public:
  struct Purpose {
    std::string what;       // "pull for step 12"
    bool exchange = false;  // filled by the reply to a push of deltas
    bool evaluation = false;
    uint64_t applied_sequence = 0;  // Pull.applied_sequence
    uint64_t commit_sequence = 0;   // 0: no commit
    uint64_t checkpoint = 0;        // Commit.checkpoint
    TrainTotals totals;             // Commit.totals
    bool end_epoch = false;
    uint32_t epoch = 0;
  };
  struct Piece {
    uint32_t flat = 0;
    uint32_t rows = 0;
    Slice keys;
    float* values = nullptr;  // null: the values are dropped
  };
  // The place where the values of one part of a reply go.
  struct Destination {
    uint32_t flat = 0;
    size_t values = 0;
    bool wanted = false;  // false: skipped; the operation did not ask for it
    float* to = nullptr;  // null: skipped
  };

  // `index` outlives the operation.
  PullOperation(const ShardIndex* index, Purpose purpose);

  // Adds a piece. INVALID_ARGUMENT when the shard has a piece already.
  // REQUIRES (this and the next three): the operation has not been started.
  absl::Status Add(Piece piece);
  // Sets Pull.for_push: the push that will be computed from these values.
  void set_for_push(uint64_t sequence) { for_push_ = sequence; }
  // Pieces are pulled only after this frame was sent to their shard. In an exchange they come with
  // the frame's reply; those that it left out are pulled once the frame is acknowledged.
  void set_after(uint64_t sequence) { after_ = sequence; }
  // Sends the commit or the end of the epoch to every pserver. A commit also pulls a piece from
  // each, without rows where possible, because only a pull is answered after the step is applied.
  void AddressAll(const RouteMap& routes);

  // Requests.
  //
  // True when something can be asked of `link` now.
  bool Wants(uint32_t link, const RouteMap& routes, const Delivery& delivery) const;
  // Writes everything that can be asked of `link` into `head` and marks it as asked by `request`.
  // Returns the key arrays.
  Message Ask(uint32_t link, uint64_t request, const RouteMap& routes, const Delivery& delivery,
              FrameHeader* head);
  // Exchange: the reply to the push of `shards` in `request` brings their pieces.
  void AskByPush(uint64_t request, const std::vector<uint32_t>& shards);

  // Replies.
  //
  // Returns the piece of this shard that `request` asked for and that has not arrived; null if
  // there is none.
  const Piece* Expected(uint64_t request, uint32_t flat) const;
  void BeginWrite(const std::vector<Destination>& destinations);
  void EndWrite(const std::vector<Destination>& destinations);
  // Call with the last message of a reply; `errors` are the parts that the pserver refused. Returns
  // true when the reply left pieces out, which then wait for a route.
  bool OnAnswered(uint64_t request, const std::vector<Delivery::Error>& errors);
  // `request` was refused or lost. Everything it asked for is needed again, with `needs_route` only
  // after the next route.
  void OnLost(uint64_t request, bool needs_route);
  void OnRoute(const RouteMap& routes, const RouteMap::Change& change);
  // Records from a reply of `link` how many updates by other workers its values include
  // (ReplyHeader.others).
  void NoteOthers(uint32_t link, uint64_t others);
  const std::vector<uint64_t>& others() const { return others_; }  // by link
  // Records from the reply to a pull the checkpoint whose cut was made after the last closed step
  // (ReplyHeader.checkpoint); 0: none.
  void NoteCheckpoint(uint64_t number) { checkpoint_ = std::max(checkpoint_, number); }
  // The largest number recorded. After a commit all pservers name the same one.
  uint64_t checkpoint() const { return checkpoint_; }

  bool Done() const;
  // Returns a link whose reply is missing; kNone when the operation is done.
  uint32_t WaitsFor(const RouteMap& routes) const;
  // The caller no longer wants the values.
  void Abandon() { abandoned_ = true; }
  bool abandoned() const { return abandoned_; }
  bool writing() const { return writers_ > 0; }

  const Purpose& purpose() const { return purpose_; }
  uint64_t after() const { return after_; }
  bool for_training_step() const;

 private:
  enum class State : uint8_t { kNeeded, kNeedsRoute, kInFlight, kWriting, kDone };
  struct PieceState {
    Piece piece;
    State state = State::kNeeded;
    uint64_t request = 0;
  };
  struct Control {
    uint32_t link = 0;
    State state = State::kNeeded;
    uint64_t request = 0;
  };
  bool CanAsk(const PieceState& piece, uint32_t link, const RouteMap& routes,
              const Delivery& delivery) const;
  void CoverPservers(const RouteMap& routes);

  const ShardIndex* const index_;
  const Purpose purpose_;
  uint64_t after_ = 0, for_push_ = 0;
  std::vector<PieceState> pieces_;
  std::vector<uint32_t> piece_of_;  // by flat shard; kNone: no piece
  std::vector<Control> controls_;
  std::vector<uint64_t> others_;  // by link; 0 before its first reply
  uint64_t checkpoint_ = 0;
  bool abandoned_ = false;
  int writers_ = 0;
};

// The operations that callers hold tickets for. It also counts the updates of other workers that
// their pulls have reported.
class OperationTable {
 public:
  using Ticket = uint64_t;
  // `pipeline_depth`: number of steps that a worker runs at once; 0 counts as 1.
  explicit OperationTable(uint32_t pipeline_depth);

  size_t size() const { return operations_.size() + failed_.size(); }
  // In the order of their tickets.
  const std::map<Ticket, std::shared_ptr<PullOperation>>& all() const { return operations_; }

  // Starts `op` after the latest push, `pushed`. A pull for a training step gets the sequence of
  // the push that will be computed from it.
  Ticket Add(std::shared_ptr<PullOperation> op, uint64_t pushed);
  // Returns a ticket for an operation that could not be started; Find returns `status`.
  Ticket AddFailed(absl::Status status);
  // INVALID_ARGUMENT when the ticket was never given or has been erased.
  absl::StatusOr<std::shared_ptr<PullOperation>> Find(Ticket ticket) const;
  // Returns the operation that frame `sequence` carries, or null if it carries none.
  std::shared_ptr<PullOperation> OfFrame(uint64_t sequence) const;
  // Forgets the ticket.
  void Erase(Ticket ticket);

  // Call when the caller has taken the values of a pull. others[link] is ReplyHeader.others of that
  // pserver.
  void OnPulled(const std::vector<uint64_t>& others);
  // The largest `others` of each link in the pulls that callers have taken. The next push is
  // computed from their values.
  const std::vector<uint64_t>& pulled_others() const { return pulled_others_; }

 private:
  const uint64_t depth_;
  std::map<Ticket, std::shared_ptr<PullOperation>> operations_;
  std::map<Ticket, absl::Status> failed_;
  Ticket next_ticket_ = 1;
  uint64_t pulled_for_ = 0;  // the push that the latest pull for a step is for
  std::vector<uint64_t> pulled_others_;
};

}  // namespace sluice
