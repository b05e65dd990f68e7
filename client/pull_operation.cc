#include "client/pull_operation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice {

PullOperation::PullOperation(const ShardIndex* index, Purpose purpose)
    : index_(index), purpose_(std::move(purpose)), piece_of_(index->size(), ShardIndex::kNone) {}

absl::Status PullOperation::Add(Piece piece) {
  uint32_t& at = piece_of_[piece.flat];
  if (at != ShardIndex::kNone) {
    return absl::InvalidArgumentError(absl::StrCat("table '", index_->table_of(piece.flat).name(),
                                                   "' is asked for twice in one pull"));
  }
  at = static_cast<uint32_t>(pieces_.size());
  pieces_.push_back({std::move(piece)});
  return absl::OkStatus();
}

bool PullOperation::for_training_step() const {
  return !purpose_.exchange && !purpose_.evaluation && purpose_.commit_sequence == 0 &&
         !pieces_.empty();
}

void PullOperation::AddressAll(const RouteMap& routes) {
  // A new route may have other pservers.
  controls_.clear();
  for (uint32_t link = 0; link < routes.links(); ++link) {
    if (routes.in_use(link)) controls_.push_back({link});
  }
  if (purpose_.commit_sequence > 0) CoverPservers(routes);
}

void PullOperation::CoverPservers(const RouteMap& routes) {
  std::vector<bool> covered(routes.links(), false);
  for (const PieceState& p : pieces_) covered[routes.owner(p.piece.flat)] = true;
  // Sparse shards first, because a piece of them can have no rows. A dense shard sends its values,
  // which are dropped.
  for (const bool sparse : {true, false}) {
    for (uint32_t flat = 0; flat < index_->size(); ++flat) {
      const TableLayout& table = index_->table_of(flat);
      if (covered[routes.owner(flat)] || table.sparse() != sparse) continue;
      covered[routes.owner(flat)] = true;
      Piece piece;
      piece.flat = flat;
      piece.rows = sparse ? 0 : static_cast<uint32_t>(table.ShardElements(index_->shard_of(flat)));
      // The shard has no piece yet, because its pserver was not covered.
      piece_of_[flat] = static_cast<uint32_t>(pieces_.size());
      pieces_.push_back({std::move(piece)});
    }
  }
}

bool PullOperation::CanAsk(const PieceState& piece, uint32_t link, const RouteMap& routes,
                           const Delivery& delivery) const {
  const uint32_t flat = piece.piece.flat;
  if (piece.state != State::kNeeded || routes.owner(flat) != link) return false;
  // A pull follows its own push on the stream. An exchange pulls only what the reply to its push
  // left out, so it waits for that reply.
  return purpose_.exchange ? delivery.acknowledged(flat) >= after_ : delivery.sent(flat) >= after_;
}

bool PullOperation::Wants(uint32_t link, const RouteMap& routes, const Delivery& delivery) const {
  if (abandoned_) return false;
  for (const PieceState& piece : pieces_) {
    if (CanAsk(piece, link, routes, delivery)) return true;
  }
  return std::any_of(controls_.begin(), controls_.end(), [&](const Control& control) {
    return control.link == link && control.state == State::kNeeded;
  });
}

Message PullOperation::Ask(uint32_t link, uint64_t request, const RouteMap& routes,
                           const Delivery& delivery, FrameHeader* head) {
  Message keys;
  for (PieceState& piece : pieces_) {
    if (!CanAsk(piece, link, routes, delivery)) continue;
    Parts* const parts = head->mutable_pull()->mutable_parts();
    parts->add_table(index_->table_of(piece.piece.flat).id());
    parts->add_shard(index_->shard_of(piece.piece.flat));
    parts->add_rows(piece.piece.rows);
    if (piece.piece.keys.size() > 0) keys.push_back(piece.piece.keys);
    piece.state = State::kInFlight;
    piece.request = request;
  }
  if (head->has_pull()) {
    head->mutable_pull()->set_applied_sequence(purpose_.applied_sequence);
    head->mutable_pull()->set_evaluation(purpose_.evaluation);
    head->mutable_pull()->set_for_push(for_push_);
  }
  for (Control& control : controls_) {
    if (control.link != link || control.state != State::kNeeded) continue;
    control.state = State::kInFlight;
    control.request = request;
    if (purpose_.commit_sequence > 0) {
      head->mutable_commit()->set_sequence(purpose_.commit_sequence);
      head->mutable_commit()->set_checkpoint(purpose_.checkpoint);
      *head->mutable_commit()->mutable_totals() = purpose_.totals;
    }
    if (purpose_.end_epoch) head->mutable_end_epoch()->set_epoch(purpose_.epoch);
  }
  return keys;
}

void PullOperation::AskByPush(uint64_t request, const std::vector<uint32_t>& shards) {
  for (uint32_t flat : shards) {
    if (piece_of_[flat] == ShardIndex::kNone) continue;
    PieceState& piece = pieces_[piece_of_[flat]];
    // The push is sent again, but these values have arrived. The caller may use them already.
    if (piece.state == State::kWriting || piece.state == State::kDone) continue;
    piece.state = State::kInFlight;
    piece.request = request;
  }
}

const PullOperation::Piece* PullOperation::Expected(uint64_t request, uint32_t flat) const {
  if (piece_of_[flat] == ShardIndex::kNone) return nullptr;
  const PieceState& piece = pieces_[piece_of_[flat]];
  return piece.request == request && piece.state == State::kInFlight ? &piece.piece : nullptr;
}

void PullOperation::BeginWrite(const std::vector<Destination>& destinations) {
  ++writers_;
  for (const Destination& to : destinations) {
    if (to.wanted) pieces_[piece_of_[to.flat]].state = State::kWriting;
  }
}

void PullOperation::EndWrite(const std::vector<Destination>& destinations) {
  --writers_;
  for (const Destination& to : destinations) {
    if (to.wanted) pieces_[piece_of_[to.flat]].state = State::kDone;
  }
}

bool PullOperation::OnAnswered(uint64_t request, const std::vector<Delivery::Error>& errors) {
  bool left_out = false;
  for (PieceState& piece : pieces_) {
    if (piece.request != request) continue;
    const uint32_t flat = piece.piece.flat;
    const bool refused = std::any_of(errors.begin(), errors.end(),
                                     [flat](const Delivery::Error& e) { return e.shard == flat; });
    if (piece.state == State::kInFlight && piece.piece.rows == 0 && !refused) {
      piece.state = State::kDone;
    } else if (purpose_.exchange) {
      // If the push was acknowledged without the values, the piece is pulled. If it was refused,
      // the piece comes with the push when that is sent again.
      if (piece.state == State::kInFlight) piece.state = State::kNeeded;
    } else if (piece.state == State::kInFlight) {
      piece.state = State::kNeedsRoute;
      left_out = true;
    } else if (refused) {
      piece.state = State::kNeeded;  // the values were read without the refused push
    }
  }
  for (Control& control : controls_) {
    if (control.request == request && control.state == State::kInFlight) {
      control.state = State::kDone;
    }
  }
  return left_out;
}

void PullOperation::OnLost(uint64_t request, bool needs_route) {
  // Pieces that are being written keep their state: their values have arrived.
  const State state = needs_route ? State::kNeedsRoute : State::kNeeded;
  for (PieceState& piece : pieces_) {
    if (piece.request == request && piece.state == State::kInFlight) piece.state = state;
  }
  for (Control& control : controls_) {
    if (control.request == request && control.state == State::kInFlight) control.state = state;
  }
}

void PullOperation::OnRoute(const RouteMap& routes, const RouteMap::Change& change) {
  for (PieceState& piece : pieces_) {
    if (piece.state == State::kNeedsRoute) piece.state = State::kNeeded;
    // A piece in flight from an earlier owner is asked of the new one. A piece of an exchange is
    // not: it comes with the push, which is sent again.
    if (piece.state == State::kInFlight && !purpose_.exchange && change.moved[piece.piece.flat]) {
      piece.state = State::kNeeded;
      piece.request = 0;
    }
  }
  // After a change of generation, commits and ends of epochs are sent to every pserver again;
  // repeating them is harmless.
  if (change.generation && !controls_.empty() && !Done()) {
    AddressAll(routes);
    return;
  }
  for (Control& control : controls_) {
    if (control.state == State::kNeedsRoute) control.state = State::kNeeded;
  }
}

void PullOperation::NoteOthers(uint32_t link, uint64_t others) {
  if (others_.size() <= link) others_.resize(link + 1);
  others_[link] = std::max(others_[link], others);
}

bool PullOperation::Done() const {
  return std::all_of(pieces_.begin(), pieces_.end(),
                     [](const PieceState& p) { return p.state == State::kDone; }) &&
         std::all_of(controls_.begin(), controls_.end(),
                     [](const Control& c) { return c.state == State::kDone; });
}

uint32_t PullOperation::WaitsFor(const RouteMap& routes) const {
  uint32_t link = ShardIndex::kNone;
  for (const Control& control : controls_) {
    if (control.state != State::kDone) link = control.link;
  }
  for (const PieceState& p : pieces_) {
    if (p.state != State::kDone) link = routes.owner(p.piece.flat);
  }
  return link;
}

OperationTable::OperationTable(uint32_t pipeline_depth)
    : depth_(std::max<uint64_t>(pipeline_depth, 1)) {}

OperationTable::Ticket OperationTable::Add(std::shared_ptr<PullOperation> op, uint64_t pushed) {
  if (op->for_training_step()) {
    // Bounded by the depth, because a worker may also pull outside its steps.
    pulled_for_ = std::min(std::max(pulled_for_, pushed) + 1, pushed + depth_);
    op->set_for_push(pulled_for_);
  }
  // The pipeline is empty at the end of an epoch.
  if (op->purpose().end_epoch) pulled_for_ = pushed;
  operations_.emplace(next_ticket_, std::move(op));
  return next_ticket_++;
}

OperationTable::Ticket OperationTable::AddFailed(absl::Status status) {
  failed_.emplace(next_ticket_, std::move(status));
  return next_ticket_++;
}

absl::StatusOr<std::shared_ptr<PullOperation>> OperationTable::Find(Ticket ticket) const {
  const auto found = operations_.find(ticket);
  if (found != operations_.end()) return found->second;
  const auto failed = failed_.find(ticket);
  if (failed != failed_.end()) return failed->second;
  return absl::InvalidArgumentError(
      absl::StrCat("ticket ", ticket, " was never given, or was waited for already"));
}

std::shared_ptr<PullOperation> OperationTable::OfFrame(uint64_t sequence) const {
  for (const auto& [ticket, op] : operations_) {
    if (op->after() == sequence && !op->abandoned()) return op;
  }
  return nullptr;
}

void OperationTable::Erase(Ticket ticket) {
  operations_.erase(ticket);
  failed_.erase(ticket);
}

void OperationTable::OnPulled(const std::vector<uint64_t>& others) {
  if (pulled_others_.size() < others.size()) pulled_others_.resize(others.size());
  for (size_t link = 0; link < others.size(); ++link) {
    pulled_others_[link] = std::max(pulled_others_[link], others[link]);
  }
}

}  // namespace sluice
