#include "server/copies/shard_copy.h"

#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "server/requests/request_parts.h"
#include "server/shards/no_room.h"
#include "server/shards/not_finite_change.h"

namespace sluice {
namespace {

UpdatePolicy OfCopies(UpdatePolicy policy) {
  // A copy has no follower of its own: its changes go no further.
  policy.replicated = false;
  return policy;
}

}  // namespace

ShardCopy::ShardCopy(const TableLayouts& layouts, const UpdatePolicy& policy, const Route& route,
                     uint32_t primary, std::shared_ptr<RowMemory> row_memory)
    : layouts_(layouts),
      policy_(OfCopies(policy)),
      limits_{std::move(row_memory), /*buffers=*/nullptr},
      shards_(layouts.size()),
      seeds_([this](uint32_t table, uint32_t shard)
                 ABSL_NO_THREAD_SAFETY_ANALYSIS { return NewShard(table, shard); }) {
  for (size_t t = 0; t < layouts.size(); ++t) {
    shards_[t].resize(layouts[t]->num_shards());
    std::vector<bool>& wanted = wanted_.emplace_back(layouts[t]->num_shards());
    for (uint32_t s = 0; s < layouts[t]->num_shards(); ++s) {
      // The copies are complete when these shards are, and no others.
      wanted[s] = route.tables(static_cast<int>(t)).owner(static_cast<int>(s)) == primary;
      missing_ += wanted[s];
    }
  }
}

Shard* ShardCopy::NewShard(uint32_t table, uint32_t shard) {
  // The primary names the shard, so nothing about it is taken for granted.
  if (table >= wanted_.size() || shard >= wanted_[table].size() || !wanted_[table][shard]) {
    return nullptr;
  }
  std::shared_ptr<Shard>& place = shards_[table][shard];
  place = nullptr;  // frees the memory of an image that was given up
  place = MakeShard(layouts_[table], shard, policy_, limits_);
  return place.get();
}

absl::Status ShardCopy::Apply(const ReplicaHeader& header, PayloadReader payload) {
  MutexLock lock(&mutex_);
  // A successor reads one state of all shards, so nothing may change it any more.
  if (sealed_) return absl::AbortedError("another process takes over from these copies");
  try {
    return ApplyLocked(header, &payload);
  } catch (const NotFiniteChange& why) {
    return absl::OutOfRangeError(why.what());  // the primary fails the job for it
  } catch (const NoRoom& why) {
    return absl::ResourceExhaustedError(why.what());
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        "no memory for copies at the follower; use more pservers, or machines with more memory");
  }
}

absl::Status ShardCopy::ApplyLocked(const ReplicaHeader& header, PayloadReader* payload) {
  if (SeedReceiver::IsSeed(header)) {
    const uint64_t before = seeds_.shards();
    SLUICE_RETURN_IF_ERROR(seeds_.Take(header, payload));
    if (seeds_.shards() == before) return absl::OkStatus();
    --missing_;
    return absl::OkStatus();
  }
  for (const FrameChanges& changes : header.changes()) {
    SLUICE_RETURN_IF_ERROR(ApplyChanges(changes, payload));
  }
  // Last: the position is confirmed to the primary, which may then acknowledge the changes to
  // workers.
  position_ = header.position();
  return absl::OkStatus();
}

absl::Status ShardCopy::ApplyChanges(const FrameChanges& changes, PayloadReader* payload) {
  // Lists, ranks and sizes come from another process, and are used as indexes below.
  const Parts& parts = changes.parts();
  if (parts.shard_size() != parts.table_size() || parts.rows_size() != parts.table_size() ||
      changes.rank() >= policy_.worker_num) {
    return absl::InvalidArgumentError(
        absl::StrCat("changes of rank ", changes.rank(), " have lists of different lengths"));
  }
  const RankPosition& at = changes.at();
  const FrameId frame{changes.rank(), at.incarnation(), at.sequence(), changes.weight(),
                      PositionOf(at)};
  for (int i = 0; i < parts.table_size(); ++i) {
    const uint32_t table = parts.table(i), index = parts.shard(i), rows = parts.rows(i);
    const bool known =
        table < shards_.size() && index < shards_[table].size() && shards_[table][index] != nullptr;
    uint64_t bytes = 0;
    if (changes.erase()) {
      bytes = uint64_t{rows} * sizeof(uint64_t);
    } else if (known && !changes.flush()) {
      bytes = PushPartBytes(*layouts_[table], rows);
    }
    if (!known || bytes > payload->remaining()) {
      return absl::InvalidArgumentError(absl::StrCat("a change of shard ", index, " of table ",
                                                     table, " does not fit the copies"));
    }
    Shard* const shard = shards_[table][index].get();
    if (changes.flush()) {
      shard->Flush();
      continue;
    }
    if (changes.erase()) {
      std::vector<uint64_t> keys(rows);
      payload->Copy(keys.data(), bytes);
      shard->DeleteRows(keys.data(), keys.size());
      continue;
    }
    ApplyResult result;
    result.status = shard->Decode(rows, payload, &scratch_);
    if (result.status == PART_OK) result = shard->Apply(frame, &scratch_);
    scratch_.message = PayloadReader();
    // The primary accepted this frame. A copy that does not is not equal to its shard any more.
    if (result.status != PART_OK || result.last_sequence != frame.sequence) {
      return absl::InvalidArgumentError(
          absl::StrCat("frame ", frame.sequence, " of rank ", frame.rank, " cannot follow frame ",
                       result.last_sequence, " in the copy of shard ", index, " of table '",
                       layouts_[table]->name(), "'"));
    }
  }
  return absl::OkStatus();
}

absl::Status ShardCopy::CheckWhole() {
  MutexLock lock(&mutex_);
  if (missing_ == 0 && seeds_.between()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the images of ", missing_, " shards are missing"));
}

void ShardCopy::Seal() {
  MutexLock lock(&mutex_);
  sealed_ = true;
}

uint64_t ShardCopy::position() {
  MutexLock lock(&mutex_);
  return position_;
}

uint64_t ShardCopy::seed_bytes() {
  MutexLock lock(&mutex_);
  return seeds_.bytes();
}

std::vector<std::shared_ptr<Shard>> ShardCopy::shards() {
  std::vector<std::shared_ptr<Shard>> all;
  MutexLock lock(&mutex_);
  for (const auto& table : shards_) {
    for (const auto& shard : table) {
      if (shard != nullptr) all.push_back(shard);
    }
  }
  return all;
}

uint64_t ShardCopy::bytes() {
  uint64_t bytes = 0;
  for (const auto& shard : shards()) bytes += shard->reserved_bytes();
  return bytes;
}

}  // namespace sluice
