#include "client/request_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

void FillPush(const PushFrame& frame, uint32_t link, Push* push) {
  push->set_sequence(frame.sequence);
  push->set_weight(frame.weight);
  push->set_delta(frame.delta);
  push->set_more(frame.open);
  SetPosition(frame.position, push);
  if (link < frame.pulled_others.size()) push->set_pulled_others(frame.pulled_others[link]);
}

// Holds the finished messages and the one that is being filled.
class Encoder {
 public:
  Encoder(const ShardIndex& index, const OutgoingRequest& request)
      : index_(index), request_(request) {
    Begin();
  }

  void AddPart(uint32_t flat) {
    const PushFrame::Part& part = request_.frame->parts[flat];
    // Parts are never cut: a part larger than a chunk gets its own message.
    if (bytes_ > 0 && bytes_ + part.bytes() > kChunkBytes) {
      messages_.push_back(EncodeFrame(header_, std::move(payload_)));
      Begin();
    }
    Parts* const parts = header_.mutable_push()->mutable_parts();
    parts->add_table(index_.table_of(flat).id());
    parts->add_shard(index_.shard_of(flat));
    parts->add_rows(part.rows);
    if (part.keys.size() > 0) payload_.push_back(part.keys);
    if (part.values.size() > 0) payload_.push_back(part.values);
    bytes_ += part.bytes();
  }

  std::vector<Message> Finish() {
    const FrameHeader& head = request_.head;
    // The pserver acts on these when all parts are applied, so they come with the last message.
    header_.set_last(true);
    if (head.has_commit()) *header_.mutable_commit() = head.commit();
    if (head.has_pull()) *header_.mutable_pull() = head.pull();
    if (head.has_end_epoch()) *header_.mutable_end_epoch() = head.end_epoch();
    payload_.insert(payload_.end(), request_.pull_keys.begin(), request_.pull_keys.end());
    messages_.push_back(EncodeFrame(header_, std::move(payload_)));
    return std::move(messages_);
  }

 private:
  void Begin() {
    header_.Clear();
    header_.set_request_id(request_.head.request_id());
    header_.set_generation(request_.head.generation());
    if (request_.frame != nullptr) FillPush(*request_.frame, request_.link, header_.mutable_push());
    payload_.clear();
    bytes_ = 0;
  }

  const ShardIndex& index_;
  const OutgoingRequest& request_;
  std::vector<Message> messages_;
  FrameHeader header_;
  Message payload_;
  size_t bytes_ = 0;  // of the parts in payload_
};

absl::Status TooLong(const ShardIndex& index, const OutgoingRequest& request, uint64_t bytes,
                     uint64_t max_bytes) {
  // Names the largest part, which is what a user can make smaller.
  uint64_t most = 0;
  uint32_t largest = 0;
  bool pull = false;
  for (size_t i = 0; request.frame != nullptr && i < request.shards->size(); ++i) {
    const uint32_t flat = (*request.shards)[i];
    if (request.frame->parts[flat].bytes() <= most) continue;
    most = request.frame->parts[flat].bytes();
    largest = flat;
  }
  const Parts& asked = request.head.pull().parts();
  for (int i = 0; i < asked.table_size(); ++i) {
    const uint32_t flat = index.Flat(asked.table(i), asked.shard(i));
    if (!index.table_of(flat).sparse() || asked.rows(i) * sizeof(uint64_t) <= most) continue;
    most = asked.rows(i) * sizeof(uint64_t);
    largest = flat;
    pull = true;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "a ", pull ? "pull" : "push", " needs a message of ", bytes, " bytes, ", most,
      " of it for table '", index.table_of(largest).name(), "' shard ", index.shard_of(largest),
      ", and limits.max_message_mib allows ", max_bytes,
      "; use smaller batches, more shards of the table, or raise limits.max_message_mib on all "
      "hosts"));
}

}  // namespace

absl::StatusOr<std::vector<Message>> EncodeRequest(const ShardIndex& index,
                                                   const OutgoingRequest& request,
                                                   uint64_t max_bytes) {
  Encoder encoder(index, request);
  if (request.frame != nullptr) {
    for (uint32_t flat : *request.shards) encoder.AddPart(flat);
  }
  std::vector<Message> messages = encoder.Finish();
  for (const Message& message : messages) {
    const uint64_t bytes = MessageSize(message);
    if (max_bytes > 0 && bytes > max_bytes) return TooLong(index, request, bytes, max_bytes);
  }
  return messages;
}

RequestTable::RequestTable(const ShardIndex* index, const RouteMap* routes, SendWindow* window,
                           uint64_t max_message_bytes)
    : index_(index), routes_(routes), window_(window), max_message_bytes_(max_message_bytes) {}

absl::StatusOr<std::vector<Message>> RequestTable::Begin(uint32_t link,
                                                         std::optional<Delivery::Send> send,
                                                         std::shared_ptr<PullOperation> op) {
  const uint64_t id = next_id_++;
  OutgoingRequest out;
  out.link = link;
  out.head.set_request_id(id);
  out.head.set_generation(routes_->generation());
  // The reply to the push of an exchange brings its values, so the request pulls nothing. Values
  // that the reply leaves out are pulled later, by a request without a send.
  if (op != nullptr && op->purpose().exchange && send.has_value()) {
    op->AskByPush(id, send->shards);
  } else if (op != nullptr) {
    out.pull_keys = op->Ask(link, id, *routes_, window_->delivery(), &out.head);
  }
  if (send.has_value()) {
    out.frame = &window_->frame(send->sequence);
    out.shards = &send->shards;
  }
  SLUICE_ASSIGN_OR_RETURN(std::vector<Message> messages,
                          EncodeRequest(*index_, out, max_message_bytes_));
  Request request;
  request.link = link;
  request.send = std::move(send);
  request.op = std::move(op);
  request.pulls = out.head.has_pull();
  requests_.emplace(id, std::move(request));
  return messages;
}

bool RequestTable::Has(uint64_t id, uint32_t link) const {
  // One pserver must not answer a request to another.
  const auto it = requests_.find(id);
  return it != requests_.end() && it->second.link == link;
}

std::shared_ptr<PullOperation> RequestTable::OperationOf(uint64_t id) const {
  const std::shared_ptr<PullOperation>& op = requests_.at(id).op;
  // The caller of an abandoned operation may have freed its arrays.
  return op == nullptr || op->abandoned() ? nullptr : op;
}

std::string RequestTable::Note(uint64_t id, const ReplyHeader& header) {
  Request& request = requests_.at(id);
  request.others = std::max(request.others, header.others());
  request.checkpoint = std::max(request.checkpoint, header.checkpoint());
  std::string last;
  for (const PartError& error : header.errors()) {
    const uint32_t flat = index_->Flat(error.table(), error.shard());
    // The reply comes from another process, which may name anything.
    if (flat == ShardIndex::kNone) continue;
    request.errors.push_back({flat, error.status(), error.last_sequence()});
    last = absl::StrCat(routes_->Name(request.link), " answered ", PartStatus_Name(error.status()),
                        " for table '", index_->table_of(flat).name(), "' shard ", error.shard());
  }
  return last;
}

RequestTable::Outcome RequestTable::Finish(uint64_t id, Garbage* garbage) {
  Request request = std::move(requests_.at(id));
  requests_.erase(id);
  Outcome outcome;
  if (request.send.has_value()) {
    outcome.status = window_->OnReply(*request.send, request.errors, garbage);
  }
  if (request.op != nullptr) {
    if (request.pulls) {
      request.op->NoteOthers(request.link, request.others);
      request.op->NoteCheckpoint(request.checkpoint);
    }
    outcome.left_out = request.op->OnAnswered(id, request.errors);
    garbage->push_back(std::move(request.op));
  }
  return outcome;
}

void RequestTable::Refuse(uint64_t id, Garbage* garbage) {
  Request request = std::move(requests_.at(id));
  requests_.erase(id);
  if (request.send.has_value()) window_->OnRefused(*request.send);
  if (request.op != nullptr) {
    request.op->OnLost(id, /*needs_route=*/true);
    garbage->push_back(std::move(request.op));
  }
}

void RequestTable::LoseAll(uint32_t link, Garbage* garbage) {
  // The window rewinds all sends of the stream at once, so only operations are told one by one.
  window_->OnBroken(link);
  for (auto it = requests_.begin(); it != requests_.end();) {
    if (it->second.link != link) {
      ++it;
      continue;
    }
    if (it->second.op != nullptr) {
      it->second.op->OnLost(it->first, /*needs_route=*/false);
      garbage->push_back(std::move(it->second.op));
    }
    it = requests_.erase(it);
  }
}

}  // namespace sluice
