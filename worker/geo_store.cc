#include "worker/geo_store.h"

#include <algorithm>
#include <cstring>

#include "common/optimizer/learning_rate.h"

namespace sluice {
namespace {

float Rate(const OptimizerConfig& optimizer, uint64_t step) {
  return LearningRateAt(optimizer.schedule(), optimizer.learning_rate(), step);
}

void StatePointers(float* state, int arrays, size_t n, float** pointers) {
  for (int i = 0; i < arrays; ++i) pointers[i] = state + i * n;
}

}  // namespace

GeoStore::GeoStore(std::vector<const TableLayout*> dense, const TableLayout* sparse,
                   uint64_t max_rows)
    : sparse_(sparse), max_rows_(max_rows) {
  for (const TableLayout* layout : dense) {
    Dense table;
    table.layout = layout;
    const UpdateRule& rule = *layout->columns()[0].rule;
    table.local.resize(layout->elements());
    table.base.resize(layout->elements());
    table.state.resize(layout->elements() * rule.state_floats());
    float* state[UpdateRule::kMaxState];
    StatePointers(table.state.data(), rule.state_floats(), layout->elements(), state);
    rule.InitState(state, layout->elements());
    dense_.push_back(std::move(table));
  }
  if (sparse_ != nullptr) {
    dim_ = sparse_->dim();
    stride_ = 2 * dim_ + sparse_->state_floats();
  }
}

void GeoStore::SetDenseBase() {
  for (Dense& table : dense_) table.base = table.local;
}

void GeoStore::Prefetch(const std::vector<uint32_t>& rows, size_t i) const {
  if (i >= rows.size() || rows[i] == kNoRow) return;
  const float* const row = &values_[rows[i] * stride_];
  for (size_t at = 0; at < stride_; at += 16) __builtin_prefetch(row + at);  // a line each
}

void GeoStore::Find(const KeySet& keys, Rows* found) const {
  found->rows.resize(keys.keys.size());
  found->pulled.clear();
  found->missing.keys.clear();
  found->missing.offsets.assign(1, 0);
  for (size_t shard = 0; shard + 1 < keys.offsets.size(); ++shard) {
    for (uint32_t i = keys.offsets[shard]; i < keys.offsets[shard + 1]; ++i) {
      if (i + kAhead < keys.keys.size()) index_.prefetch(keys.keys[i + kAhead]);
      const auto at = index_.find(keys.keys[i]);
      found->rows[i] = at == index_.end() ? kNoRow : at->second;
      if (at != index_.end() && info_[at->second].fresh == interval_) continue;
      found->missing.keys.push_back(keys.keys[i]);
      found->pulled.push_back(i);
    }
    found->missing.offsets.push_back(found->missing.keys.size());
  }
}

uint32_t GeoStore::AddRow(uint64_t key) {
  const uint32_t row = info_.size();
  info_.emplace_back();
  info_.back().key = key;
  values_.resize(info_.size() * stride_);
  index_.emplace(key, row);
  for (const TableLayout::Column& column : sparse_->columns()) {
    float* state[UpdateRule::kMaxState];
    StatePointers(state_row(row) + column.state_begin, column.rule->state_floats(), column.dim,
                  state);
    column.rule->InitState(state, column.dim);
  }
  return row;
}

void GeoStore::Fill(Rows* found, const float* values) {
  for (size_t i = 0; i < found->pulled.size(); ++i) {
    uint32_t& row = found->rows[found->pulled[i]];
    if (row == kNoRow) row = AddRow(found->missing.keys[i]);
    std::memcpy(local_row(row), values + i * dim_, dim_ * sizeof(float));
    std::memcpy(base_row(row), values + i * dim_, dim_ * sizeof(float));
    info_[row].fresh = interval_;
  }
}

void GeoStore::Gather(const Rows& found, float* values) const {
  for (size_t i = 0; i < found.rows.size(); ++i) {
    Prefetch(found.rows, i + kAhead);
    std::memcpy(values + i * dim_, &values_[found.rows[i] * stride_], dim_ * sizeof(float));
  }
}

void GeoStore::UpdateRows(const Rows& found, const float* gradients, uint64_t schedule_step) {
  std::vector<float> rates;
  for (const TableLayout::Column& column : sparse_->columns())
    rates.push_back(Rate(column.optimizer, schedule_step));
  for (size_t i = 0; i < found.rows.size(); ++i) {
    Prefetch(found.rows, i + kAhead);
    const uint32_t row = found.rows[i];
    RowInfo& info = info_[row];
    if (!info.updated) {
      info.updated = true;
      updated_rows_.push_back(row);
    }
    info.last_used = schedule_step;
    ++info.count;
    const float* rate = rates.data();
    for (const TableLayout::Column& column : sparse_->columns()) {
      float* state[UpdateRule::kMaxState];
      StatePointers(state_row(row) + column.state_begin, column.rule->state_floats(), column.dim,
                    state);
      column.rule->Apply(local_row(row) + column.begin, state, gradients + i * dim_ + column.begin,
                         column.dim, column.dim, *rate++, info.count);
    }
  }
  touched_ = true;
}

void GeoStore::UpdateDense(size_t i, const float* gradient, uint64_t schedule_step) {
  Dense& table = dense_[i];
  const TableLayout::Column& column = table.layout->columns()[0];
  float* state[UpdateRule::kMaxState];
  StatePointers(table.state.data(), column.rule->state_floats(), table.local.size(), state);
  column.rule->Apply(table.local.data(), state, gradient, table.local.size(),
                     table.layout->row_elements(), Rate(column.optimizer, schedule_step),
                     ++table.count);
  touched_ = true;
}

void GeoStore::TakeDelta(KeySet* keys, std::vector<float>* rows,
                         std::vector<std::vector<float>>* dense) {
  keys->keys.clear();
  keys->offsets.clear();
  rows->resize(updated_rows_.size() * dim_);
  if (sparse_ != nullptr) {
    std::vector<uint64_t> updated(updated_rows_.size());
    std::vector<uint32_t> position(updated_rows_.size());
    for (size_t i = 0; i < updated.size(); ++i) updated[i] = info_[updated_rows_[i]].key;
    grouper_.Run(*sparse_, updated.data(), updated.size(), keys, position.data());
    sent_rows_.resize(updated.size());
    for (size_t i = 0; i < updated.size(); ++i) {
      sent_rows_[position[i]] = updated_rows_[i];
      const float* local = local_row(updated_rows_[i]);
      const float* base = base_row(updated_rows_[i]);
      float* delta = rows->data() + position[i] * dim_;
      for (size_t d = 0; d < dim_; ++d) delta[d] = local[d] - base[d];
    }
  }
  dense->resize(dense_.size());
  for (size_t i = 0; i < dense_.size(); ++i) {
    const Dense& table = dense_[i];
    (*dense)[i].resize(table.local.size());
    for (size_t e = 0; e < table.local.size(); ++e) (*dense)[i][e] = table.local[e] - table.base[e];
  }
  for (const uint32_t row : updated_rows_) info_[row].updated = false;
  updated_rows_.clear();
  touched_ = false;
}

void GeoStore::Merge(const std::vector<float>& sent_rows, const std::vector<float>& server_rows,
                     const std::vector<std::vector<float>>& sent_dense,
                     const std::vector<std::vector<float>>& server_dense) {
  // local' = server + (local - base - sent): exactly the server's value when nothing moved
  // meanwhile.
  auto merge = [](float* local, float* base, const float* sent, const float* server, size_t n) {
    for (size_t i = 0; i < n; ++i) {
      local[i] = server[i] + ((local[i] - base[i]) - sent[i]);
      base[i] = server[i];
    }
  };
  ++interval_;
  for (size_t i = 0; i < sent_rows_.size(); ++i) {
    Prefetch(sent_rows_, i + kAhead);
    const uint32_t row = sent_rows_[i];
    merge(local_row(row), base_row(row), sent_rows.data() + i * dim_, server_rows.data() + i * dim_,
          dim_);
    info_[row].fresh = interval_;
  }
  for (const uint32_t row : updated_rows_) info_[row].fresh = interval_;
  for (size_t i = 0; i < dense_.size(); ++i) {
    Dense& table = dense_[i];
    merge(table.local.data(), table.base.data(), sent_dense[i].data(), server_dense[i].data(),
          table.local.size());
  }
  if (index_.size() > max_rows_) Evict();
}

void GeoStore::Evict() {
  // Rows updated since TakeDelta hold moves not sent yet: they stay whatever the limit.
  std::vector<uint32_t> order;
  for (uint32_t row = 0; row < info_.size(); ++row) {
    if (!info_[row].updated) order.push_back(row);
  }
  const size_t leave = std::min<size_t>(order.size(), info_.size() - max_rows_);
  std::nth_element(
      order.begin(), order.begin() + leave, order.end(),
      [this](uint32_t a, uint32_t b) { return info_[a].last_used < info_[b].last_used; });
  std::vector<bool> leaves(info_.size());
  for (size_t i = 0; i < leave; ++i) leaves[order[i]] = true;
  std::vector<uint32_t> moved_to(info_.size());
  uint32_t kept = 0;
  index_.clear();
  for (uint32_t row = 0; row < info_.size(); ++row) {
    if (leaves[row]) continue;
    if (kept != row) {
      info_[kept] = info_[row];
      std::memcpy(&values_[kept * stride_], &values_[row * stride_], stride_ * sizeof(float));
    }
    index_.emplace(info_[kept].key, kept);
    moved_to[row] = kept++;
  }
  for (uint32_t& row : updated_rows_) row = moved_to[row];
  info_.resize(kept);
  values_.resize(kept * stride_);
}

}  // namespace sluice
