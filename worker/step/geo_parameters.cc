#include "worker/step/geo_parameters.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/table/not_finite.h"

namespace sluice {
namespace {

constexpr size_t kKeysAhead = 16;         // distance of the prefetch, in keys or rows
constexpr size_t kStateChunk = 64 << 10;  // floats of state that are saved or restored at a time

// The front of a row's record in a checkpoint; its state follows.
struct SavedRow {
  uint64_t key = 0, last_used = 0, count = 0;
};

GeoExchange View(std::vector<float>* rows, std::vector<std::vector<float>>* dense) {
  GeoExchange view;
  view.rows = rows->data();
  for (std::vector<float>& table : *dense) view.dense.push_back(table.data());
  return view;
}

}  // namespace

GeoParameters::GeoParameters(std::vector<const TableLayout*> dense, const TableLayout* sparse,
                             uint64_t max_rows, std::unique_ptr<GeoOptimizer> values)
    : dense_(std::move(dense)),
      sparse_(sparse),
      max_rows_(max_rows),
      dim_(sparse == nullptr ? 0 : sparse->dim()),
      optimizer_(std::move(values)) {
  if (optimizer_ != nullptr) return;
  auto host = std::make_unique<HostGeoOptimizer>(dense_, sparse_);
  host_ = host.get();
  optimizer_ = std::move(host);
}

void GeoParameters::Find(const KeySet& keys, Rows* found) const {
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

uint32_t GeoParameters::TakeSlot(uint64_t key) {
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

absl::Status GeoParameters::Fill(Rows* found, const float* values) {
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
  return optimizer_->FillRows(slots_.data(), new_.data(), slots_.size(), values);
}

HotRowUse GeoParameters::Use(const Rows& found) {
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

absl::Status GeoParameters::Update(const Rows& found, const float* rows,
                                   std::vector<const float*> dense, uint64_t schedule_step) {
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
  GeoUpdate update;
  update.slots = slots.data();
  update.counts = counts_.data();
  update.n = slots.size();
  update.dense_count = ++dense_count_;
  update.schedule_step = schedule_step;
  update.rows = rows;
  update.dense = std::move(dense);
  SLUICE_RETURN_IF_ERROR(optimizer_->Update(update));
  if (host_ == nullptr || !host_->broken_row().has_value()) return absl::OkStatus();
  const uint32_t slot = slots[*host_->broken_row()];
  std::vector<float> row(dim_ + row_state_floats());
  host_->GatherRows(&slot, 1, row.data());
  SLUICE_RETURN_IF_ERROR(host_->ReadRowState(slot, 1, row.data() + dim_));
  return RowNotFinite(*sparse_, info_[slot].key, FirstNotFinite(row.data(), row.size()));
}

absl::Status GeoParameters::TakeDelta(KeySet* keys, std::vector<float>* rows,
                                      std::vector<std::vector<float>>* dense) {
  keys->keys.clear();
  keys->offsets.clear();
  rows->resize(updated_.size() * dim_);
  sent_.resize(updated_.size());
  if (sparse_ != nullptr) {
    const size_t n = updated_.size();
    keys_.resize(n);
    positions_.resize(n);
    for (size_t i = 0; i < n; ++i) keys_[i] = info_[updated_[i]].key;
    grouper_.Run(*sparse_, keys_.data(), n, keys, positions_.data());
    // The request has the keys by shard; sent_ gets their slots in the same order, so that row i of
    // the answer belongs to sent_[i].
    for (size_t i = 0; i < n; ++i) sent_[positions_[i]] = updated_[i];
  }
  dense->resize(dense_.size());
  for (size_t i = 0; i < dense_.size(); ++i) (*dense)[i].resize(dense_[i]->elements());
  // From here on, moves belong to the next exchange.
  for (const uint32_t slot : updated_) info_[slot].updated = false;
  updated_.clear();
  sent_at_ = steps_made_;
  return optimizer_->TakeDelta(sent_.data(), sent_.size(), View(rows, dense));
}

absl::Status GeoParameters::Merge(std::vector<float>* sent_rows, std::vector<float>* server_rows,
                                  std::vector<std::vector<float>>* sent_dense,
                                  std::vector<std::vector<float>>* server_dense) {
  SLUICE_RETURN_IF_ERROR(optimizer_->Merge(sent_.data(), sent_.size(), View(sent_rows, sent_dense),
                                           View(server_rows, server_dense)));
  // A new interval makes every row stale; the loops below keep those that are still current.
  ++interval_;
  for (const uint32_t slot : sent_) {
    info_[slot].fresh = interval_;
    info_[slot].asked_at = sent_at_;
  }
  // These have moved since the send. Pulling them again would lose the moves.
  for (const uint32_t slot : updated_) info_[slot].fresh = interval_;
  if (index_.size() > max_rows_) Evict();
  return absl::OkStatus();
}

void GeoParameters::Evict() {
  // Rows updated since TakeDelta hold moves that are not sent yet, so they stay even beyond the
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

uint64_t GeoParameters::DenseStateFloats(size_t i) const {
  return dense_[i]->elements() * dense_[i]->columns()[0].rule->state_floats();
}

absl::Status GeoParameters::SaveState(GeoStateWriter* to) const {
  std::vector<float> state;
  SLUICE_RETURN_IF_ERROR(to->Put(dense_count_));
  SLUICE_RETURN_IF_ERROR(to->Put(uint64_t{dense_.size()}));
  for (size_t table = 0; table < dense_.size(); ++table) {
    const uint64_t floats = DenseStateFloats(table);
    SLUICE_RETURN_IF_ERROR(to->Put(floats));
    for (uint64_t at = 0; at < floats; at += state.size()) {
      state.resize(std::min<uint64_t>(floats - at, kStateChunk));
      SLUICE_RETURN_IF_ERROR(optimizer_->ReadDenseState(table, at, state.size(), state.data()));
      const size_t bad = FirstNotFinite(state.data(), state.size());
      if (bad < state.size()) {
        const uint64_t elements = dense_[table]->elements();
        return ElementNotFinite(*dense_[table], (at + bad) % elements, 1 + (at + bad) / elements);
      }
      SLUICE_RETURN_IF_ERROR(to->Append(state.data(), state.size() * sizeof(float)));
    }
  }
  const size_t floats = row_state_floats();
  // The state may be on a device, where reading row by row would be slow, and is too large to read
  // at once.
  const size_t chunk = std::max<size_t>(kStateChunk / std::max<size_t>(floats, 1), 1);
  SLUICE_RETURN_IF_ERROR(to->Put(uint64_t{floats}));
  SLUICE_RETURN_IF_ERROR(to->Put(rows()));
  for (size_t first = 0; first < info_.size(); first += chunk) {
    const size_t n = std::min(info_.size() - first, chunk);
    state.resize(n * floats);
    SLUICE_RETURN_IF_ERROR(optimizer_->ReadRowState(static_cast<uint32_t>(first), n, state.data()));
    for (size_t i = 0; i < n; ++i) {
      const RowInfo& info = info_[first + i];
      if (!info.taken) continue;
      const size_t bad = FirstNotFinite(state.data() + i * floats, floats);
      if (bad < floats) return RowNotFinite(*sparse_, info.key, dim_ + bad);
      SLUICE_RETURN_IF_ERROR(to->Put(SavedRow{info.key, info.last_used, info.count}));
      SLUICE_RETURN_IF_ERROR(to->Append(state.data() + i * floats, floats * sizeof(float)));
    }
  }
  return absl::OkStatus();
}

absl::Status GeoParameters::RestoreState(GeoStateReader* from) {
  std::vector<float> state;
  uint64_t tables = 0, floats = 0, rows = 0;
  SLUICE_RETURN_IF_ERROR(from->Get(&dense_count_));
  SLUICE_RETURN_IF_ERROR(from->Get(&tables));
  if (tables != dense_.size()) {
    return from->Damaged(absl::StrCat("it has ", tables, " dense tables, the job ", dense_.size()));
  }
  for (size_t table = 0; table < dense_.size(); ++table) {
    SLUICE_RETURN_IF_ERROR(from->Get(&floats));
    if (floats != DenseStateFloats(table)) {
      return from->Damaged(absl::StrCat("it has ", floats, " floats of optimizer state for table '",
                                        dense_[table]->name(), "', the job ",
                                        DenseStateFloats(table)));
    }
    for (uint64_t at = 0; at < floats; at += state.size()) {
      state.resize(std::min<uint64_t>(floats - at, kStateChunk));
      SLUICE_RETURN_IF_ERROR(from->Read(state.data(), state.size() * sizeof(float)));
      SLUICE_RETURN_IF_ERROR(optimizer_->WriteDenseState(table, at, state.size(), state.data()));
    }
  }
  SLUICE_RETURN_IF_ERROR(from->Get(&floats));
  SLUICE_RETURN_IF_ERROR(from->Get(&rows));
  if (floats != row_state_floats() || (sparse_ == nullptr && rows > 0)) {
    return from->Damaged(absl::StrCat("it has rows of ", floats, " floats of state, the job of ",
                                      row_state_floats()));
  }
  return RestoreRows(rows, from);
}

absl::Status GeoParameters::RestoreRows(uint64_t rows, GeoStateReader* from) {
  const size_t floats = row_state_floats();
  const size_t chunk = std::max<size_t>(kStateChunk / std::max<size_t>(floats, 1), 1);
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
      if (index_.contains(row.key))
        return from->Damaged(absl::StrCat("it has key ", row.key, " twice"));
      RowInfo& info = info_[TakeSlot(row.key)];
      info.last_used = row.last_used;
      info.count = row.count;
    }
    // The rows of a chunk have slots one after the other, since no slot is free before training
    // begins.
    SLUICE_RETURN_IF_ERROR(optimizer_->WriteRowState(first, n, state.data()));
    rows -= n;
  }
  return absl::OkStatus();
}

}  // namespace sluice
