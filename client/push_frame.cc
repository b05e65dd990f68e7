#include "client/push_frame.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

absl::Status CheckFinite(const TableLayout& table, const float* values, size_t n) {
  if (AllFinite(values, n)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the push for table '", table.name(),
      "' holds a NaN or an infinity; it was not sent. Lower the learning rate or clip the "
      "gradient (optimizers.clip_global_norm)"));
}

absl::Status AddSparse(const ShardIndex& index, const PushRequest& request,
                       const PushRequest::Sparse& push, PushFrame* frame) {
  SLUICE_RETURN_IF_ERROR(CheckKeys(index, push.table, push.keys.get()));
  const TableLayout& table = *index.tables()[push.table];
  const KeySet& keys = *push.keys;
  const size_t dim = table.dim();
  SLUICE_RETURN_IF_ERROR(CheckFinite(table, push.values, keys.keys.size() * dim));
  for (uint32_t s = 0; s < table.num_shards(); ++s) {
    PushFrame::Part& part = frame->parts[index.begin(push.table) + s];
    if (part.rows != 0) return Twice(table);
    const uint32_t first = keys.offsets[s];
    part.rows = keys.offsets[s + 1] - first;
    if (part.rows == 0) continue;
    part.keys = Slice(keys.keys.data() + first, part.rows * sizeof(uint64_t), push.keys);
    part.values =
        ValuesSlice(push.values + first * dim, part.rows * dim, table.wire_bytes(), request.owner);
  }
  return absl::OkStatus();
}

absl::Status AddDense(const ShardIndex& index, const PushRequest& request,
                      const PushRequest::Dense& push, PushFrame* frame) {
  if (push.table >= index.tables().size() || index.tables()[push.table]->sparse()) {
    return absl::InvalidArgumentError(absl::StrCat("table ", push.table, " is not a dense table"));
  }
  if (push.values == nullptr) return absl::OkStatus();
  const TableLayout& table = *index.tables()[push.table];
  SLUICE_RETURN_IF_ERROR(CheckFinite(table, push.values, table.elements()));
  for (uint32_t s = 0; s < table.num_shards(); ++s) {
    PushFrame::Part& part = frame->parts[index.begin(push.table) + s];
    if (part.rows != 0) return Twice(table);
    part.rows = static_cast<uint32_t>(table.ShardElements(s));
    part.values = ValuesSlice(push.values + s * table.block_elements(), part.rows,
                              table.wire_bytes(), request.owner);
  }
  return absl::OkStatus();
}

void FillPush(const PushFrame& frame, uint32_t link, Push* push) {
  push->set_sequence(frame.sequence);
  push->set_weight(frame.weight);
  push->set_delta(frame.delta);
  push->set_more(frame.open);
  push->set_task_id(frame.task_id);
  push->set_task_end(frame.task_end);
  if (link < frame.pulled_others.size()) push->set_pulled_others(frame.pulled_others[link]);
}

}  // namespace

absl::Status Twice(const TableLayout& table) {
  return absl::InvalidArgumentError(
      absl::StrCat("table '", table.name(), "' is pushed twice in one frame"));
}

absl::Status CheckKeys(const ShardIndex& index, uint32_t table, const KeySet* keys) {
  if (table >= index.tables().size() || !index.tables()[table]->sparse()) {
    return absl::InvalidArgumentError(absl::StrCat("table ", table, " is not a sparse table"));
  }
  const TableLayout& layout = *index.tables()[table];
  bool good = keys != nullptr && keys->offsets.size() == layout.num_shards() + size_t{1} &&
              keys->offsets.front() == 0 && keys->offsets.back() == keys->keys.size();
  for (uint32_t s = 0; good && s < layout.num_shards(); ++s) {
    good = keys->offsets[s] <= keys->offsets[s + 1];
  }
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("keys for table '", layout.name(),
                                                 "' are not grouped by its ", layout.num_shards(),
                                                 " shards; use KeyDeduplicator"));
}

absl::StatusOr<PushFrame> MakePushFrame(const ShardIndex& index, const PushRequest& request) {
  PushFrame frame;
  frame.weight = request.weight;
  frame.task_id = request.task_id;
  frame.task_end = request.task_end;
  frame.parts.resize(index.size());
  for (const auto& push : request.sparse) {
    SLUICE_RETURN_IF_ERROR(AddSparse(index, request, push, &frame));
  }
  for (const auto& push : request.dense) {
    SLUICE_RETURN_IF_ERROR(AddDense(index, request, push, &frame));
  }
  return frame;
}

std::vector<Message> EncodeRequest(const ShardIndex& index, const FrameHeader& head,
                                   const PushFrame* frame, const std::vector<uint32_t>& shards,
                                   uint32_t link, Message pull_keys) {
  std::vector<Message> messages;
  FrameHeader header;
  Message payload;
  size_t bytes = 0;
  auto begin = [&] {
    header.Clear();
    header.set_request_id(head.request_id());
    header.set_generation(head.generation());
    if (frame != nullptr) FillPush(*frame, link, header.mutable_push());
    payload.clear();
    bytes = 0;
  };
  begin();
  if (frame != nullptr) {
    for (uint32_t flat : shards) {
      const PushFrame::Part& part = frame->parts[flat];
      if (bytes > 0 && bytes + part.bytes() > kChunkBytes) {
        messages.push_back(EncodeFrame(header, std::move(payload)));
        begin();
      }
      Parts* const parts = header.mutable_push()->mutable_parts();
      parts->add_table(index.table_of(flat).id());
      parts->add_shard(index.shard_of(flat));
      parts->add_rows(part.rows);
      if (part.keys.size() > 0) payload.push_back(part.keys);
      if (part.values.size() > 0) payload.push_back(part.values);
      bytes += part.bytes();
    }
  }
  header.set_last(true);
  if (head.has_commit()) *header.mutable_commit() = head.commit();
  if (head.has_pull()) *header.mutable_pull() = head.pull();
  if (head.has_end_epoch()) *header.mutable_end_epoch() = head.end_epoch();
  payload.insert(payload.end(), pull_keys.begin(), pull_keys.end());
  messages.push_back(EncodeFrame(header, std::move(payload)));
  return messages;
}

}  // namespace sluice
