#include "client/push_frame.h"

#include "absl/strings/str_cat.h"
#include "client/key_set.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

absl::Status CheckFinite(const TableLayout& table, const float* values, size_t n) {
  // Checked before anything is sent: at a pserver such a value fails the job for all workers.
  if (AllFinite(values, n)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the push for table '", table.name(),
      "' holds a NaN or an infinity; it was not sent. Lower the learning rate or clip the "
      "gradient (optimizers.clip_global_norm)"));
}

absl::Status AddSparseParts(const ShardIndex& index, const PushRequest& request,
                            const PushRequest::Sparse& push, PushFrame* frame) {
  SLUICE_RETURN_IF_ERROR(CheckKeys(index, push.table, push.keys.get()));
  const TableLayout& table = *index.tables()[push.table];
  const KeySet& keys = *push.keys;
  const size_t dim = table.dim();
  SLUICE_RETURN_IF_ERROR(CheckFinite(table, push.values, keys.keys.size() * dim));
  for (uint32_t s = 0; s < table.num_shards(); ++s) {
    PushFrame::Part& part = frame->parts[index.begin(push.table) + s];
    if (part.rows != 0) return PushedTwice(table);
    const uint32_t first = keys.offsets[s];
    part.rows = keys.offsets[s + 1] - first;
    if (part.rows == 0) continue;  // the empty part is sent too: a shard needs every sequence
    part.keys = Slice(keys.keys.data() + first, part.rows * sizeof(uint64_t), push.keys);
    part.values =
        ValuesSlice(push.values + first * dim, part.rows * dim, table.wire_bytes(), request.owner);
  }
  return absl::OkStatus();
}

absl::Status AddDenseParts(const ShardIndex& index, const PushRequest& request,
                           const PushRequest::Dense& push, PushFrame* frame) {
  if (push.table >= index.tables().size() || index.tables()[push.table]->sparse()) {
    return absl::InvalidArgumentError(absl::StrCat("table ", push.table, " is not a dense table"));
  }
  // Its parts stay empty and are sent too, because a shard needs every sequence.
  if (push.values == nullptr) return absl::OkStatus();
  const TableLayout& table = *index.tables()[push.table];
  SLUICE_RETURN_IF_ERROR(CheckFinite(table, push.values, table.elements()));
  for (uint32_t s = 0; s < table.num_shards(); ++s) {
    PushFrame::Part& part = frame->parts[index.begin(push.table) + s];
    if (part.rows != 0) return PushedTwice(table);
    part.rows = static_cast<uint32_t>(table.ShardElements(s));
    part.values = ValuesSlice(push.values + s * table.block_elements(), part.rows,
                              table.wire_bytes(), request.owner);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status PushedTwice(const TableLayout& table) {
  return absl::InvalidArgumentError(
      absl::StrCat("table '", table.name(), "' is pushed twice in one frame"));
}

absl::StatusOr<PushFrame> MakePushFrame(const ShardIndex& index, const PushRequest& request) {
  PushFrame frame;
  frame.weight = request.weight;
  frame.position = request.position;
  // One part for each shard, with rows or not: every shard counts every frame.
  frame.parts.resize(index.size());
  for (const auto& push : request.sparse) {
    SLUICE_RETURN_IF_ERROR(AddSparseParts(index, request, push, &frame));
  }
  for (const auto& push : request.dense) {
    SLUICE_RETURN_IF_ERROR(AddDenseParts(index, request, push, &frame));
  }
  return frame;
}

}  // namespace sluice
