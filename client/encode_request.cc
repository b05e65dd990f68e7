#include "client/encode_request.h"

#include <utility>

#include "absl/strings/str_cat.h"

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

}  // namespace sluice
