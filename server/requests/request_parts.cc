#include "server/requests/request_parts.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/security/refusal_reason.h"
#include "server/shards/buffered_bytes.h"
#include "server/shards/no_room.h"

namespace sluice {
namespace {

// Rows of an answer's part: those asked for, or the elements of the whole block.
uint32_t AnswerRows(const TableLayout& layout, uint32_t shard, uint32_t rows) {
  return layout.sparse() ? rows : static_cast<uint32_t>(layout.ShardElements(shard));
}

size_t AnswerBytes(const TableLayout& layout, uint32_t answer_rows) {
  return size_t{answer_rows} * layout.wire_bytes() * (layout.sparse() ? layout.dim() : 1);
}

void AddValues(Shard* shard, const std::vector<uint64_t>& keys, uint32_t rows, size_t bytes,
               ReplyWriter* reply) {
  const uint32_t table = shard->table().id();
  // Lent values are not copied: the reply refers to the block itself until the transport has sent
  // it.
  Slice lent = shard->Lend();
  if (lent.owner() != nullptr) {
    reply->AddPart(table, shard->index(), rows, std::move(lent));
  } else {
    shard->Read(keys.data(), keys.size(), reply->AddPart(table, shard->index(), rows, bytes));
  }
}

absl::Status TooMuchWaits(const Shard& shard, const FrameId& frame, uint64_t bytes) {
  constexpr double kMiB = 1 << 20;
  const BufferBudget& budget = *shard.buffers();
  return Because(
      RefusalReason::kRoom,
      absl::ResourceExhaustedError(absl::StrFormat(
          "push %d of rank %d brings %.1f MiB of gradients for table '%s' (shard %d), and %.1f MiB "
          "of the rank wait on this pserver already; a rank of this job may have %.1f MiB there, "
          "which should be far more than its batches need; push again when fewer wait, make "
          "train.batch_size smaller, give features fewer keys (hash_buckets), or use more pservers",
          frame.sequence, frame.rank, bytes / kMiB, shard.table().name(), shard.index(),
          budget.taken(frame.rank) / kMiB, budget.most() / kMiB)));
}

}  // namespace

size_t PushPartBytes(const TableLayout& layout, uint32_t rows) {
  const size_t row_bytes =
      layout.sparse() ? 8 + size_t{layout.dim()} * layout.wire_bytes() : layout.wire_bytes();
  return rows * row_bytes;
}

absl::Status ApplyPushParts(const JobView& view, const TableLayouts& layouts, uint32_t rank,
                            uint64_t incarnation, const Push& push, PayloadReader* payload,
                            PushPart* scratch, ReplyWriter* reply, PushFaults* faults) {
  const FrameId frame{rank, incarnation, push.sequence(), push.weight(), PositionOf(push)};
  const Parts& parts = push.parts();
  for (int i = 0; i < parts.table_size(); ++i) {
    const uint32_t table = parts.table(i), index = parts.shard(i), rows = parts.rows(i);
    const TableLayout& layout = *layouts[table];
    Shard* shard = view.FindShard(table, index);
    const size_t bytes = PushPartBytes(layout, rows);
    if (shard == nullptr) {
      // The other parts still count: the client sends this one alone to the shard's new owner.
      payload->Skip(bytes);
      reply->AddError(table, index, PART_WRONG_SHARD, 0);
      continue;
    }
    scratch->wire.clear();
    shard->LendMemory(rank, scratch);
    ApplyResult result;
    if (shard->replicated()) {
      // The follower gets the very bytes that are checked here: lent ones may change in between.
      scratch->wire = payload->Keep(bytes);
      payload->Skip(bytes);
      PayloadReader kept(scratch->wire);
      result.status = shard->Decode(rows, &kept, scratch);
    } else {
      result.status = shard->Decode(rows, payload, scratch);
    }
    if (result.status == PART_OK) {
      // Copied, because Apply may take the part's own keys.
      const std::vector<uint64_t> keys = push.delta() ? scratch->keys : std::vector<uint64_t>();
      NamingTable(*shard, [&] { result = shard->Apply(frame, scratch); });
      scratch->message = PayloadReader();
      scratch->wire.clear();
      if (result.no_room) return TooMuchWaits(*shard, frame, shard->BufferedBytes(*scratch));
      if (result.status == PART_OK && push.delta()) {
        const uint32_t n = AnswerRows(layout, index, rows);
        AddValues(shard, keys, n, AnswerBytes(layout, n), reply);
      }
    } else if (result.status == PART_BAD_SIZE && faults->malformed.ok()) {
      faults->malformed = absl::InvalidArgumentError(absl::StrCat(
          "table '", layout.name(), "': push ", push.sequence(), " of rank ", rank, " brings ",
          rows, " rows to shard ", index, ", which are not those of the shard"));
    } else if (result.status == PART_NOT_FINITE && faults->not_finite.ok()) {
      faults->not_finite = absl::InvalidArgumentError(absl::StrCat(
          "table '", layout.name(), "': push ", push.sequence(), " of rank ", rank,
          " has a NaN or Inf for shard ", index, "; lower the learning rate or set clip_value"));
    }
    if (result.status != PART_OK)
      reply->AddError(table, index, result.status, result.last_sequence);
  }
  return absl::OkStatus();
}

size_t ReadPullParts(const JobView& view, const TableLayouts& layouts, const Parts& parts,
                     PayloadReader payload, ReplyWriter* reply) {
  size_t bytes = 0;
  // First announce all bytes, by which the reply sizes its buffers.
  for (int i = 0; i < parts.table_size(); ++i) {
    const uint32_t table = parts.table(i), index = parts.shard(i);
    if (view.FindShard(table, index) == nullptr) continue;
    const TableLayout& layout = *layouts[table];
    const size_t part_bytes = AnswerBytes(layout, AnswerRows(layout, index, parts.rows(i)));
    reply->Expect(part_bytes);
    bytes += part_bytes;
  }
  std::vector<uint64_t> keys;
  for (int i = 0; i < parts.table_size(); ++i) {
    const uint32_t table = parts.table(i), index = parts.shard(i);
    const TableLayout& layout = *layouts[table];
    keys.resize(layout.sparse() ? parts.rows(i) : 0);
    payload.Copy(keys.data(), keys.size() * sizeof(uint64_t));
    Shard* shard = view.FindShard(table, index);
    if (shard == nullptr) {
      reply->AddError(table, index, PART_WRONG_SHARD, 0);
      continue;
    }
    const uint32_t rows = AnswerRows(layout, index, parts.rows(i));
    AddValues(shard, keys, rows, AnswerBytes(layout, rows), reply);
  }
  return bytes;
}

}  // namespace sluice
