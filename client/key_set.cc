#include "client/key_set.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

// A slot is prefetched this many keys before it is looked up.
constexpr size_t kAhead = 12;
constexpr size_t kMinSlots = 64;

}  // namespace

absl::Status CheckKeys(const ShardIndex& index, uint32_t table, const KeySet* keys) {
  if (table >= index.tables().size() || !index.tables()[table]->sparse()) {
    return absl::InvalidArgumentError(absl::StrCat("table ", table, " is not a sparse table"));
  }
  const TableLayout& layout = *index.tables()[table];
  // The offsets become positions in the caller's arrays.
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

void KeyDeduplicator::Run(const TableLayout& table, const uint64_t* keys, size_t n, KeySet* unique,
                          uint32_t* index) {
  // When the rounds have run out, an old slot could look like one of this round.
  if (slots_.empty() || round_ == UINT32_MAX) {
    slots_.assign(std::max(slots_.size(), kMinSlots), Slot{});
    round_ = 0;
  }
  // A slot of an earlier round counts as empty, so the table need not be cleared for each batch.
  ++round_;
  unique_.resize(n);
  shards_.resize(n);
  unique->offsets.assign(table.num_shards() + 1, 0);

  const size_t found = NumberKeys(keys, n, index);

  // Counting sort by shard; it keeps the order of first occurrence within a shard.
  uint32_t* const offsets = unique->offsets.data();
  for (size_t u = 0; u < found; ++u) {
    shards_[u] = table.ShardOf(unique_[u]);
    ++offsets[shards_[u] + 1];
  }
  for (uint32_t s = 0; s < table.num_shards(); ++s) offsets[s + 1] += offsets[s];
  next_.assign(offsets, offsets + table.num_shards());
  unique->keys.resize(found);
  for (size_t u = 0; u < found; ++u) {
    // Occurrences refer to a key by its number, which the last loop replaces by this position.
    const uint32_t position = next_[shards_[u]]++;
    unique->keys[position] = unique_[u];
    shards_[u] = position;  // from here on the position of key u
  }
  for (size_t i = 0; i < n; ++i) index[i] = shards_[index[i]];
}

size_t KeyDeduplicator::NumberKeys(const uint64_t* keys, size_t n, uint32_t* index) {
  size_t mask = slots_.size() - 1, found = 0;
  for (size_t i = 0; i < n; ++i) {
    if (i + kAhead < n) __builtin_prefetch(&slots_[MixHash(keys[i + kAhead]) & mask], 1);
    size_t at = MixHash(keys[i]) & mask;
    while (slots_[at].round == round_ && slots_[at].key != keys[i]) at = (at + 1) & mask;
    Slot& slot = slots_[at];
    if (slot.round != round_) {
      slot = {keys[i], static_cast<uint32_t>(found), round_};
      unique_[found++] = keys[i];
    }
    index[i] = slot.id;
    // At most half full, so that searches stay short.
    if (2 * found > slots_.size()) {
      Grow(found);
      mask = slots_.size() - 1;
    }
  }
  return found;
}

void KeyDeduplicator::Grow(size_t found) {
  slots_.assign(2 * slots_.size(), Slot{});
  const size_t mask = slots_.size() - 1;
  for (size_t u = 0; u < found; ++u) {
    size_t at = MixHash(unique_[u]) & mask;
    while (slots_[at].round == round_) at = (at + 1) & mask;
    slots_[at] = {unique_[u], static_cast<uint32_t>(u), round_};
  }
}

}  // namespace sluice
