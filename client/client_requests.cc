// Requests and replies: the part of ClientCore that decides what goes in a message and what an
// answer means.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/client_core.h"

namespace sluice {
namespace {

using State = PullOperation::State;

// The pserver cannot take requests now; a new stream may find it ready.
bool MayPass(absl::StatusCode code) {
  return code == absl::StatusCode::kNotFound || code == absl::StatusCode::kUnavailable ||
         code == absl::StatusCode::kResourceExhausted;
}

}  // namespace

void ClientCore::Pump(After* after) {
  if (!status_.ok()) return;
  for (uint32_t link = 0; link < links_.size(); ++link) {
    if (!open_[link] || pserver_of_link_[link] == ShardIndex::kNone) continue;
    while (auto send = delivery_.Next(link)) {
      const uint64_t sequence = send->sequence;
      SendRequest(link, std::move(send), OperationOfFrame(sequence), after);
    }
    for (auto& [ticket, op] : operations_) {
      if (HasWork(*op, link)) SendRequest(link, std::nullopt, op, after);
    }
  }
  if (delivery_.needs_route() && !route_wanted_) WantRoute("");
}

std::shared_ptr<PullOperation> ClientCore::OperationOfFrame(uint64_t sequence) {
  for (auto& [ticket, op] : operations_) {
    if (op->after == sequence && !op->abandoned) return op;
  }
  return nullptr;
}

bool ClientCore::Eligible(const PullOperation& op, const PullOperation::Piece& piece,
                          uint32_t link) const {
  if (piece.state != State::kNeeded || owner_[piece.flat] != link) return false;
  return op.exchange ? delivery_.acknowledged(piece.flat) >= op.after
                     : delivery_.sent(piece.flat) >= op.after;
}

bool ClientCore::HasWork(const PullOperation& op, uint32_t link) const {
  if (op.abandoned) return false;
  for (const auto& piece : op.pieces) {
    if (Eligible(op, piece, link)) return true;
  }
  return std::any_of(op.controls.begin(), op.controls.end(), [&](const auto& control) {
    return control.link == link && control.state == State::kNeeded;
  });
}

void ClientCore::SendRequest(uint32_t link, std::optional<Delivery::Send> send,
                             std::shared_ptr<PullOperation> op, After* after) {
  const uint64_t id = next_request_++;
  FrameHeader head;
  head.set_request_id(id);
  head.set_generation(route_.generation());
  Message pull_keys;
  if (op != nullptr && op->exchange && send.has_value()) {
    ClaimByPush(*send, id, op.get());
  } else if (op != nullptr) {
    pull_keys = FillOperation(link, id, op.get(), &head);
  }
  static const std::vector<uint32_t> kNoShards;
  const PushFrame* frame = nullptr;
  if (send.has_value()) frame = frames_[send->sequence - frames_.front()->sequence].get();
  for (Message& message : EncodeRequest(index_, head, frame, send ? send->shards : kNoShards, link,
                                        std::move(pull_keys))) {
    const uint64_t bytes = MessageSize(message);
    if (options_.max_message_bytes > 0 && bytes > options_.max_message_bytes) {
      Fail(TooLong(frame, send ? send->shards : kNoShards, op.get(), id, bytes));
      return;
    }
    links_[link]->Enqueue(std::move(message));
  }
  Request request;
  request.link = link;
  request.send = std::move(send);
  request.op = std::move(op);
  request.pulls = head.has_pull();
  requests_.emplace(id, std::move(request));
  after->links.push_back(links_[link].get());
}

absl::Status ClientCore::TooLong(const PushFrame* frame, const std::vector<uint32_t>& shards,
                                 const PullOperation* op, uint64_t request, uint64_t bytes) const {
  uint64_t most = 0;
  uint32_t largest = 0;
  bool pull = false;
  for (uint32_t flat : shards) {
    if (frame->parts[flat].bytes() <= most) continue;
    most = frame->parts[flat].bytes();
    largest = flat;
  }
  for (size_t i = 0; op != nullptr && i < op->pieces.size(); ++i) {
    if (op->pieces[i].request != request || op->pieces[i].keys.size() <= most) continue;
    most = op->pieces[i].keys.size();
    largest = op->pieces[i].flat;
    pull = true;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "a ", pull ? "pull" : "push", " needs a message of ", bytes, " bytes, ", most,
      " of it for table '", index_.table_of(largest).name(), "' shard ", index_.shard_of(largest),
      ", and limits.max_message_mib allows ", options_.max_message_bytes,
      "; use smaller batches, more shards of the table, or raise limits.max_message_mib on all "
      "hosts"));
}

void ClientCore::ClaimByPush(const Delivery::Send& send, uint64_t id, PullOperation* op) {
  for (uint32_t flat : send.shards) {
    if (op->piece_of[flat] == ShardIndex::kNone) continue;
    PullOperation::Piece& piece = op->pieces[op->piece_of[flat]];
    if (piece.state == State::kWriting || piece.state == State::kDone) continue;
    piece.state = State::kInFlight;
    piece.request = id;
  }
}

Message ClientCore::FillOperation(uint32_t link, uint64_t id, PullOperation* op,
                                  FrameHeader* head) {
  Message keys;
  for (PullOperation::Piece& piece : op->pieces) {
    if (!Eligible(*op, piece, link)) continue;
    Parts* const parts = head->mutable_pull()->mutable_parts();
    parts->add_table(index_.table_of(piece.flat).id());
    parts->add_shard(index_.shard_of(piece.flat));
    parts->add_rows(piece.rows);
    if (piece.keys.size() > 0) keys.push_back(piece.keys);
    piece.state = State::kInFlight;
    piece.request = id;
  }
  if (head->has_pull()) {
    head->mutable_pull()->set_applied_sequence(op->applied_sequence);
    head->mutable_pull()->set_evaluation(op->evaluation);
    head->mutable_pull()->set_for_push(op->for_push);
  }
  for (PullOperation::Control& control : op->controls) {
    if (control.link != link || control.state != State::kNeeded) continue;
    control.state = State::kInFlight;
    control.request = id;
    if (op->commit_sequence > 0) head->mutable_commit()->set_sequence(op->commit_sequence);
    if (op->end_epoch) head->mutable_end_epoch()->set_epoch(op->epoch);
  }
  return keys;
}

void ClientCore::OnReply(uint32_t link, DecodedReply reply) {
  const ReplyHeader& header = reply.header;
  const uint64_t id = header.request_id();
  After after;
  std::vector<Destination> destinations;
  std::shared_ptr<PullOperation> op;
  absl::Status status;
  bool known = false, wanted = false;
  {
    MutexLock lock(&mu_);
    const auto it = requests_.find(id);
    if (it != requests_.end() && it->second.link == link) {
      if (header.code() != 0) {
        RefuseRequest(it, header, &after);
      } else {
        known = true;
        NoteErrors(header, &it->second);
        op = it->second.op;
        if (op != nullptr && op->abandoned) op = nullptr;
        auto claimed = ClaimPieces(index_, reply, id, op.get());
        if (claimed.ok()) destinations = *std::move(claimed);
        status = claimed.status();
        if (op != nullptr) ++op->writers;
      }
    }
  }
  if (known && status.ok()) status = CopyValues(index_, destinations, op.get(), &reply.payload);
  {
    MutexLock lock(&mu_);
    if (op != nullptr) --op->writers;
    for (const Destination& to : destinations) {
      if (to.piece != ShardIndex::kNone) op->pieces[to.piece].state = State::kDone;
    }
    if (!status.ok()) {
      Fail(absl::Status(status.code(), absl::StrCat(LinkText(link), ": ", status.message())));
    } else if (known && header.last()) {
      const auto it = requests_.find(id);
      if (it != requests_.end()) FinishRequest(it, &after);
    }
    Pump(&after);
    // A message before the last of its request completes nothing.
    wanted = !known || !status.ok() || header.last() || (op != nullptr && op->abandoned);
    after.garbage.push_back(std::move(op));
  }
  if (wanted) Changed();
  after.Run();
}

void ClientCore::NoteErrors(const ReplyHeader& header, Request* request) {
  request->others = std::max(request->others, header.others());
  for (const PartError& error : header.errors()) {
    const uint32_t flat = index_.Flat(error.table(), error.shard());
    if (flat == ShardIndex::kNone) continue;
    request->errors.push_back({flat, error.status(), error.last_sequence()});
    last_refusal_ =
        absl::StrCat(LinkText(request->link), " answered ", PartStatus_Name(error.status()),
                     " for table '", index_.table_of(flat).name(), "' shard ", error.shard());
  }
}

void ClientCore::FinishRequest(Requests::iterator it, After* after) {
  const uint64_t id = it->first;
  Request request = std::move(it->second);
  requests_.erase(it);
  if (request.send.has_value()) {
    const absl::Status status = delivery_.OnReply(*request.send, request.errors);
    if (!status.ok()) {
      Fail(absl::Status(status.code(), absl::StrCat(status.message(), "; ", last_refusal_)));
    }
    ReleaseFrames(after);
  }
  if (request.op != nullptr) FinishOperation(id, request);
  after->garbage.push_back(std::move(request.op));
}

void ClientCore::FinishOperation(uint64_t id, const Request& request) {
  PullOperation& op = *request.op;
  if (request.pulls && request.link < op.others.size()) {
    op.others[request.link] = std::max(op.others[request.link], request.others);
  }
  auto refused = [&](uint32_t flat) {
    return std::any_of(request.errors.begin(), request.errors.end(),
                       [flat](const Delivery::Error& e) { return e.shard == flat; });
  };
  bool missing = false;
  for (PullOperation::Piece& piece : op.pieces) {
    if (piece.request != id) continue;
    const bool was_refused = refused(piece.flat);
    if (piece.state == State::kInFlight && piece.rows == 0 && !was_refused) {
      piece.state = State::kDone;
    } else if (op.exchange) {
      // Acknowledged without its values: pulled. Refused: comes with the push when that is sent
      // again.
      if (piece.state == State::kInFlight) piece.state = State::kNeeded;
    } else if (piece.state == State::kInFlight) {
      piece.state = State::kNeedsRoute;
      missing = true;
    } else if (was_refused) {
      piece.state = State::kNeeded;  // read before its push
    }
  }
  for (PullOperation::Control& control : op.controls) {
    if (control.request == id && control.state == State::kInFlight) control.state = State::kDone;
  }
  if (missing) {
    WantRoute(last_refusal_.empty()
                  ? absl::StrCat(LinkText(request.link), " left shards out of its answer")
                  : last_refusal_);
  }
}

void ClientCore::Unsend(uint64_t id, const Request& request, State state) {
  if (request.op == nullptr) return;
  for (PullOperation::Piece& piece : request.op->pieces) {
    if (piece.request == id && piece.state == State::kInFlight) piece.state = state;
  }
  for (PullOperation::Control& control : request.op->controls) {
    if (control.request == id && control.state == State::kInFlight) control.state = state;
  }
}

void ClientCore::RefuseRequest(Requests::iterator it, const ReplyHeader& header, After* after) {
  const auto code = static_cast<absl::StatusCode>(header.code());
  const uint32_t link = it->second.link;
  const absl::Status why(code, absl::StrCat(LinkText(link), ": ", header.message()));
  last_refusal_ = std::string(why.message());
  if (code == absl::StatusCode::kFailedPrecondition) {
    if (it->second.send.has_value()) delivery_.OnRefused(*it->second.send);
    Unsend(it->first, it->second, State::kNeedsRoute);
    after->garbage.push_back(std::move(it->second.op));
    requests_.erase(it);
    WantRoute("");
  } else if (MayPass(code)) {
    links_[link]->Break(why);
    BreakLink(link, after);
  } else {
    Fail(why);
  }
}

void ClientCore::BreakLink(uint32_t link, After* after) {
  open_[link] = false;
  delivery_.OnBroken(link);
  for (auto it = requests_.begin(); it != requests_.end();) {
    if (it->second.link != link) {
      ++it;
      continue;
    }
    Unsend(it->first, it->second, State::kNeeded);
    after->garbage.push_back(std::move(it->second.op));
    it = requests_.erase(it);
  }
  woken_ = true;
  wake_.NotifyAll();
}

void ClientCore::ReleaseFrames(After* after) {
  while (!frames_.empty() && frames_.front()->sequence <= delivery_.released()) {
    after->garbage.push_back(std::move(frames_.front()));
    frames_.pop_front();
  }
}

void ClientCore::OnOpen(uint32_t link) {
  After after;
  {
    MutexLock lock(&mu_);
    open_[link] = true;
    delivery_.OnOpen(link);
    Pump(&after);
  }
  Changed();
  after.Run();
}

void ClientCore::OnBroken(uint32_t link) {
  After after;
  {
    MutexLock lock(&mu_);
    BreakLink(link, &after);
  }
  after.Run();
}

void ClientCore::OnHelloRefused(uint32_t link, const ReplyHeader& header) {
  const auto code = static_cast<absl::StatusCode>(header.code());
  After after;
  {
    MutexLock lock(&mu_);
    BreakLink(link, &after);
    const std::string why = absl::StrCat(LinkText(link), " refused Hello: ", header.message());
    if (code == absl::StatusCode::kFailedPrecondition) {
      WantRoute(why);
    } else {
      Fail(absl::Status(code, why));
    }
  }
  after.Run();
}

}  // namespace sluice
