#include "worker/step/geo_rows.h"

#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/table/not_finite.h"

namespace sluice {
namespace {

constexpr size_t kKeysAhead = 16;            // distance of the prefetch, in keys or rows
constexpr size_t kRowStateChunk = 64 << 10;  // floats of state that are saved or restored at a time

// The front of a row's record in a checkpoint; its state follows.
struct SavedRow {
  uint64_t key = 0, last_used = 0, count = 0;
};

}  // namespace

GeoRows::GeoRows(size_t table, const TableLayout* layout, uint64_t max_rows, GeoOptimizer* values)
    : table_(table), layout_(layout), max_rows_(max_rows), values_(values) {}

void GeoRows::Find(const KeySet& keys, Found* found) const {
  found->slots.resize(keys.keys.size());
  found->pulled.clear();
  found->steps_made = steps_made_;
  found->missing.keys.clear();
  found->missing.offsets.assign(1, 0);
  // Two passes: the second one fetches the rows of later keys ahead, and needs their slots for
  // that.
  for (size_t i = 0; i < keys.keys.size(); ++i) {
    if (i + kKeysAhead < keys.keys.size()) index_.prefetch(keys.keys[i + kKeysAhead]);
    const auto at = index_.find(keys.keys[i]);
    found->slots[i] = at == index_.end() ? kNoSlot : at->second;
  }
  const std::vector<uint32_t>& slots = found->slots;
  for (size_t shard = 0; shard + 1 < keys.offsets.size(); ++shard) {
    for (uint32_t i = keys.offsets[shard]; i < keys.offsets[shard + 1]; ++i) {
      if (i + kKeysAhead < slots.size() && slots[i + kKeysAhead] != kNoSlot)
        __builtin_prefetch(&info_[slots[i + kKeysAhead]]);
      // A stale row keeps its slot and its optimizer state, and is pulled into it.
      if (slots[i] != kNoSlot && info_[slots[i]].fresh == interval_) continue;
      found->missing.keys.push_back(keys.keys[i]);
      found->pulled.push_back(i);
    }
    found->missing.offsets.push_back(found->missing.keys.size());
  }
}

uint32_t GeoRows::TakeSlot(uint64_t key) {
  uint32_t slot = info_.size();
  if (free_.empty()) {
    info_.emplace_back();
  } else {
    slot = free_.back();
    free_.pop_back();
    info_[slot] = RowInfo();
  }
  info_[slot].key = key;
  info_[slot].taken = true;
  index_.emplace(key, slot);
  return slot;
}

absl::Status GeoRows::Fill(Found* found, const float* values) {
  if (found->pulled.empty()) return absl::OkStatus();
  slots_.resize(found->pulled.size());
  new_.resize(found->pulled.size());
  for (size_t i = 0; i < slots_.size(); ++i) {
    uint32_t& slot = found->slots[found->pulled[i]];
    new_[i] = slot == kNoSlot;
    if (slot == kNoSlot) slot = TakeSlot(found->missing.keys[i]);
    info_[slot].fresh = interval_;
    // Values are as old as the request, not as the answer.
    info_[slot].asked_at = found->steps_made;
    slots_[i] = slot;
  }
  return values_->FillRows(table_, {slots_.data(), slots_.size()}, new_.data(), values);
}

HotRowUse GeoRows::Use(const Found& found) {
  const std::vector<uint32_t>& slots = found.slots;
  uint64_t sum = 0, oldest = 0;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (i + kKeysAhead < slots.size()) __builtin_prefetch(&info_[slots[i + kKeysAhead]]);
    const uint64_t age = steps_made_ - info_[slots[i]].asked_at;
    sum += age;
    oldest = std::max(oldest, age);
  }
  ++steps_made_;
  HotRowUse use;
  use.set_hits(slots.size() - found.pulled.size());
  use.set_misses(found.pulled.size());
  use.set_staleness_sum(sum);
  use.set_staleness_max(oldest);
  return use;
}

GeoUpdate::Rows GeoRows::CountUpdate(const Found& found, uint64_t schedule_step) {
  const std::vector<uint32_t>& slots = found.slots;
  counts_.resize(slots.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    if (i + kKeysAhead < slots.size()) __builtin_prefetch(&info_[slots[i + kKeysAhead]]);
    RowInfo& info = info_[slots[i]];
    // Each row is listed once, however often it moves before the next exchange.
    if (!info.updated) {
      info.updated = true;
      updated_.push_back(slots[i]);
    }
    info.last_used = schedule_step;
    counts_[i] = ++info.count;
  }
  return {slots.data(), counts_.data(), slots.size(), nullptr};
}

void GeoRows::BeginExchange(KeySet* keys) {
  const size_t n = updated_.size();
  sent_.resize(n);
  keys_.resize(n);
  positions_.resize(n);
  for (size_t i = 0; i < n; ++i) keys_[i] = info_[updated_[i]].key;
  grouper_.Run(*layout_, keys_.data(), n, keys, positions_.data());
  for (size_t i = 0; i < n; ++i) {
    // The request has the keys by shard; sent_ gets their slots in the same order, so that row i of
    // the answer belongs to sent_[i].
    sent_[positions_[i]] = updated_[i];
    // From here on, moves belong to the next exchange.
    info_[updated_[i]].updated = false;
  }
  updated_.clear();
  sent_at_ = steps_made_;
}

void GeoRows::EndExchange() {
  // A new interval makes every row stale; the loops below keep those that are still current.
  ++interval_;
  for (const uint32_t slot : sent_) {
    info_[slot].fresh = interval_;
    info_[slot].asked_at = sent_at_;
  }
  // These have moved since the send. Pulling them again would lose the moves.
  for (const uint32_t slot : updated_) info_[slot].fresh = interval_;
  if (index_.size() > max_rows_) Evict();
}

void GeoRows::Evict() {
  // Rows updated since BeginExchange hold moves that are not sent yet, so they stay even beyond the
  // limit.
  std::vector<uint32_t> order;
  for (uint32_t slot = 0; slot < info_.size(); ++slot) {
    if (info_[slot].taken && !info_[slot].updated) order.push_back(slot);
  }
  const size_t leave = std::min<size_t>(order.size(), index_.size() - max_rows_);
  std::nth_element(
      order.begin(), order.begin() + leave, order.end(),
      [this](uint32_t a, uint32_t b) { return info_[a].last_used < info_[b].last_used; });
  order.resize(leave);
  for (const uint32_t slot : order) {
    index_.erase(info_[slot].key);
    info_[slot].taken = false;
  }
  // Sorted downwards, so that TakeSlot takes the lowest slots first and used slots stay together.
  free_.insert(free_.end(), order.begin(), order.end());
  std::sort(free_.begin(), free_.end(), std::greater<uint32_t>());
}

size_t GeoRows::ChunkRows() const {
  // The state may be on a device, where reading row by row would be slow, and is too large to read
  // at once.
  return std::max<size_t>(kRowStateChunk / std::max<size_t>(layout_->state_floats(), 1), 1);
}

absl::Status GeoRows::SaveState(GeoStateWriter* to) const {
  const size_t floats = layout_->state_floats(), chunk = ChunkRows();
  SLUICE_RETURN_IF_ERROR(to->Put(uint64_t{floats}));
  SLUICE_RETURN_IF_ERROR(to->Put(size()));
  std::vector<float> state;
  for (size_t first = 0; first < info_.size(); first += chunk) {
    const size_t n = std::min(info_.size() - first, chunk);
    state.resize(n * floats);
    SLUICE_RETURN_IF_ERROR(
        values_->ReadRowState(table_, static_cast<uint32_t>(first), n, state.data()));
    for (size_t i = 0; i < n; ++i) {
      const RowInfo& info = info_[first + i];
      if (!info.taken) continue;
      const size_t bad = FirstNotFinite(state.data() + i * floats, floats);
      if (bad < floats) return RowNotFinite(*layout_, info.key, layout_->dim() + bad);
      SLUICE_RETURN_IF_ERROR(to->Put(SavedRow{info.key, info.last_used, info.count}));
      SLUICE_RETURN_IF_ERROR(to->Append(state.data() + i * floats, floats * sizeof(float)));
    }
  }
  return absl::OkStatus();
}

absl::Status GeoRows::RestoreState(GeoStateReader* from) {
  const size_t floats = layout_->state_floats(), chunk = ChunkRows();
  uint64_t saved_floats = 0, rows = 0;
  SLUICE_RETURN_IF_ERROR(from->Get(&saved_floats));
  SLUICE_RETURN_IF_ERROR(from->Get(&rows));
  if (saved_floats != floats) {
    return from->Damaged(absl::StrCat("it has rows of ", saved_floats,
                                      " floats of state for table '", layout_->name(),
                                      "', the job of ", floats));
  }
  std::vector<float> state;
  while (rows > 0) {
    const size_t n = std::min<uint64_t>(rows, chunk);
    const auto first = static_cast<uint32_t>(info_.size());
    state.resize(n * floats);
    for (size_t i = 0; i < n; ++i) {
      SavedRow row;
      SLUICE_RETURN_IF_ERROR(from->Get(&row));
      SLUICE_RETURN_IF_ERROR(from->Read(state.data() + i * floats, floats * sizeof(float)));
      // TakeSlot would take a second slot for it, which no lookup finds.
      if (index_.contains(row.key)) {
        return from->Damaged(
            absl::StrCat("it has key ", row.key, " of table '", layout_->name(), "' twice"));
      }
      RowInfo& info = info_[TakeSlot(row.key)];
      info.last_used = row.last_used;
      info.count = row.count;
    }
    // The rows of a chunk have slots one after the other, since no slot is free before training
    // begins.
    SLUICE_RETURN_IF_ERROR(values_->WriteRowState(table_, first, n, state.data()));
    rows -= n;
  }
  return absl::OkStatus();
}

}  // namespace sluice
