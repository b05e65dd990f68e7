#include "client/request_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/encode_request.h"
#include "common/base/status_macros.h"

namespace sluice {

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
  const auto it = requests_.find(id);
  return it != requests_.end() && it->second.link == link;
}

std::shared_ptr<PullOperation> RequestTable::OperationOf(uint64_t id) const {
  const std::shared_ptr<PullOperation>& op = requests_.at(id).op;
  return op == nullptr || op->abandoned() ? nullptr : op;
}

std::string RequestTable::Note(uint64_t id, const ReplyHeader& header) {
  Request& request = requests_.at(id);
  request.others = std::max(request.others, header.others());
  request.checkpoint = std::max(request.checkpoint, header.checkpoint());
  std::string last;
  for (const PartError& error : header.errors()) {
    const uint32_t flat = index_->Flat(error.table(), error.shard());
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
