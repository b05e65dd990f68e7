// The work that one ticket waits for: values of shards (a pull, an exchange) and words to pservers
// (a commit, the end of an epoch).
//
// A piece is the part of one shard, a control the word to one pserver. Each is needed, in flight
// with one request, or done; a piece whose values are being copied is between the last two, and one
// that was refused may wait for a route first. Values are copied from the reply's slices to the
// caller's array without the lock, between BeginWrite and EndWrite; whoever abandons the operation
// waits until writing() is false before the caller may free the array.
//
// Thread safety: guarded by the owner's lock.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/delivery.h"
#include "client/route_map.h"
#include "client/shard_index.h"
#include "common/wire/frame.h"

namespace sluice {

class PullOperation {
 public:
  struct Purpose {
    std::string what;       // "pull for step 12"
    bool exchange = false;  // filled by the answer to a push of deltas
    bool evaluation = false;
    uint64_t applied_sequence = 0;  // Pull.applied_sequence
    uint64_t commit_sequence = 0;   // 0: no commit
    bool end_epoch = false;
    uint32_t epoch = 0;
  };
  struct Piece {
    uint32_t flat = 0;
    uint32_t rows = 0;
    Slice keys;
    float* values = nullptr;  // null: read and dropped
  };
  // Where the values of one part of a reply go.
  struct Destination {
    uint32_t flat = 0;
    size_t values = 0;
    bool wanted = false;  // false: skipped, and the operation does not hear of it
    float* to = nullptr;  // null: skipped
  };

  // `index` outlives the operation.
  PullOperation(const ShardIndex* index, Purpose purpose);

  // INVALID_ARGUMENT when the shard has a piece already. Before the operation is started, as are
  // the next three.
  absl::Status Add(Piece piece);
  // Its values belong to this step of the worker (Pull.for_push).
  void set_for_push(uint64_t sequence) { for_push_ = sequence; }
  // A piece is asked for once this frame was sent to its shard; in an exchange, once the frame is
  // acknowledged and the answer to it left the piece out.
  void set_after(uint64_t sequence) { after_ = sequence; }
  // The commit or the end of the epoch goes to every pserver. A commit also asks each of them for a
  // piece, of no rows where it can be, because only a pull is answered after the step is applied.
  void AddressAll(const RouteMap& routes);

  // Requests. Something can be asked of `link` now.
  bool Wants(uint32_t link, const RouteMap& routes, const Delivery& delivery) const;
  // Puts all of that in `head`, for `request`; returns the arrays of keys.
  Message Ask(uint32_t link, uint64_t request, const RouteMap& routes, const Delivery& delivery,
              FrameHeader* head);
  // An exchange: the push of `shards` in `request` brings their pieces.
  void AskByPush(uint64_t request, const std::vector<uint32_t>& shards);

  // Answers. The piece of this shard when it was asked for by `request` and is not there yet; else
  // null.
  const Piece* Expected(uint64_t request, uint32_t flat) const;
  void BeginWrite(const std::vector<Destination>& destinations);
  void EndWrite(const std::vector<Destination>& destinations);
  // The last message of the answer has come; `errors` are the parts it refused. True when the
  // answer left pieces out: they wait for a route.
  bool OnAnswered(uint64_t request, const std::vector<Delivery::Error>& errors);
  // `request` was refused or lost: what it asked for is needed again, or after the next route.
  void OnLost(uint64_t request, bool needs_route);
  void OnRoute(const RouteMap& routes, const RouteMap::Change& change);
  // The answer of `link` to a pull says how many updates of others it holds (ReplyHeader.others).
  void NoteOthers(uint32_t link, uint64_t others);
  const std::vector<uint64_t>& others() const { return others_; }  // by link

  bool Done() const;
  // A link that has something to answer; kNone when it is done.
  uint32_t WaitsFor(const RouteMap& routes) const;
  // The caller takes nothing more.
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
  std::vector<uint32_t> piece_of_;  // by flat shard; kNone: not asked for
  std::vector<Control> controls_;
  std::vector<uint64_t> others_;  // by link, 0 where it has not answered
  bool abandoned_ = false;
  int writers_ = 0;
};

}  // namespace sluice
