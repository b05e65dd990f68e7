#include "worker/step/host_geo_optimizer.h"

#include <algorithm>
#include <cstring>

#include "common/optimizer/learning_rate.h"
#include "common/table/not_finite.h"

namespace sluice {
namespace {

constexpr size_t kGeoRowsAhead = 16;  // distance of the prefetch, in rows

float Rate(const OptimizerConfig& optimizer, uint64_t step) {
  return LearningRateAt(optimizer.schedule(), optimizer.learning_rate(), step);
}

// Prefetches row slots[i + kGeoRowsAhead] of rows [slots][stride].
void FetchAhead(const std::vector<float>& rows, size_t stride, const uint32_t* slots, size_t n,
                size_t i) {
  constexpr size_t kLine = 16;  // floats
  if (i + kGeoRowsAhead >= n) return;
  const float* const row = &rows[slots[i + kGeoRowsAhead] * stride];
  for (size_t at = 0; at < stride; at += kLine) __builtin_prefetch(row + at);
  __builtin_prefetch(row + stride - 1);
}

void StatePointers(float* state, int arrays, size_t n, float** pointers) {
  for (int i = 0; i < arrays; ++i) pointers[i] = state + i * n;
}

// local' = server + (local - base - sent). In this order of operations local' is exactly the
// server's value if nothing moved since the send.
void MergeValues(float* local, float* base, const float* sent, const float* server, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    local[i] = server[i] + ((local[i] - base[i]) - sent[i]);
    base[i] = server[i];
  }
}

void Difference(const float* local, const float* base, size_t n, float* delta) {
  for (size_t i = 0; i < n; ++i) delta[i] = local[i] - base[i];
}

}  // namespace

HostGeoOptimizer::HostGeoOptimizer(std::vector<const TableLayout*> dense, const TableLayout* sparse)
    : sparse_(sparse) {
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
    stride_ = dim_ + sparse_->state_floats();
  }
}

absl::Status HostGeoOptimizer::SetDense(const std::vector<const float*>& values) {
  for (size_t i = 0; i < dense_.size(); ++i) {
    std::copy_n(values[i], dense_[i].local.size(), dense_[i].local.data());
    // Equal: nothing has moved since the pull.
    dense_[i].base = dense_[i].local;
  }
  return absl::OkStatus();
}

void HostGeoOptimizer::InitState(uint32_t slot) {
  for (const TableLayout::Column& column : sparse_->columns()) {
    float* state[UpdateRule::kMaxState];
    StatePointers(state_row(slot) + column.state_begin, column.rule->state_floats(), column.dim,
                  state);
    column.rule->InitState(state, column.dim);
  }
}

void HostGeoOptimizer::ReserveSlots(size_t room) {
  // Values and state of a row lie side by side, because an update touches both. Bases are apart:
  // only exchanges read them.
  if (values_.size() >= room * stride_) return;
  values_.resize(room * stride_);
  bases_.resize(room * dim_);
}

absl::Status HostGeoOptimizer::FillRows(const uint32_t* slots, const uint8_t* fresh, size_t n,
                                        const float* values) {
  if (n == 0) return absl::OkStatus();
  ReserveSlots(size_t{*std::max_element(slots, slots + n)} + 1);
  for (size_t i = 0; i < n; ++i) {
    std::memcpy(local_row(slots[i]), values + i * dim_, dim_ * sizeof(float));
    std::memcpy(base_row(slots[i]), values + i * dim_, dim_ * sizeof(float));
    // A row that was here before keeps its optimizer state; only its values are the server's again.
    if (fresh[i]) InitState(slots[i]);
  }
  return absl::OkStatus();
}

void HostGeoOptimizer::GatherRows(const uint32_t* slots, size_t n, float* values) const {
  for (size_t i = 0; i < n; ++i) {
    FetchAhead(values_, stride_, slots, n, i);
    std::memcpy(values + i * dim_, &values_[slots[i] * stride_], dim_ * sizeof(float));
  }
}

bool HostGeoOptimizer::UpdateRow(uint32_t slot, const float* gradient,
                                 const std::vector<float>& rates, uint64_t count) {
  const float* rate = rates.data();
  bool finite = true;
  for (const TableLayout::Column& column : sparse_->columns()) {
    float* state[UpdateRule::kMaxState];
    StatePointers(state_row(slot) + column.state_begin, column.rule->state_floats(), column.dim,
                  state);
    finite &= column.rule->Apply(local_row(slot) + column.begin, state, gradient + column.begin,
                                 column.dim, column.dim, *rate++, count);
  }
  return finite;
}

absl::Status HostGeoOptimizer::Update(const GeoUpdate& update) {
  // A rate depends on the step alone, so it is computed once and not for each row.
  std::vector<float> rates;
  if (sparse_ != nullptr) {
    for (const TableLayout::Column& column : sparse_->columns())
      rates.push_back(Rate(column.optimizer, update.schedule_step));
  }
  broken_row_.reset();
  for (size_t i = 0; i < update.n; ++i) {
    // Slots are in no order, so each row is a cache miss unless it is fetched ahead.
    FetchAhead(values_, stride_, update.slots, update.n, i);
    if (!UpdateRow(update.slots[i], update.rows + i * dim_, rates, update.counts[i]) &&
        !broken_row_.has_value()) {
      broken_row_ = i;
    }
  }
  for (size_t i = 0; i < dense_.size(); ++i) {
    Dense& table = dense_[i];
    const TableLayout::Column& column = table.layout->columns()[0];
    float* state[UpdateRule::kMaxState];
    StatePointers(table.state.data(), column.rule->state_floats(), table.local.size(), state);
    if (!column.rule->Apply(table.local.data(), state, update.dense[i], table.local.size(),
                            table.layout->row_elements(),
                            Rate(column.optimizer, update.schedule_step), update.dense_count)) {
      return NotFinite(table);
    }
  }
  return absl::OkStatus();
}

absl::Status HostGeoOptimizer::NotFinite(const Dense& table) {
  const size_t n = table.local.size(), in_values = FirstNotFinite(table.local.data(), n);
  if (in_values < n) return ElementNotFinite(*table.layout, in_values, 0);
  const size_t in_state = FirstNotFinite(table.state.data(), table.state.size());
  return ElementNotFinite(*table.layout, in_state % n, 1 + in_state / n);
}

absl::Status HostGeoOptimizer::TakeDelta(const uint32_t* slots, size_t n,
                                         const GeoExchange& delta) {
  for (size_t i = 0; i < n; ++i) {
    FetchAhead(values_, stride_, slots, n, i);
    FetchAhead(bases_, dim_, slots, n, i);
    Difference(local_row(slots[i]), base_row(slots[i]), dim_, delta.rows + i * dim_);
  }
  for (size_t i = 0; i < dense_.size(); ++i) {
    Difference(dense_[i].local.data(), dense_[i].base.data(), dense_[i].local.size(),
               delta.dense[i]);
  }
  return absl::OkStatus();
}

absl::Status HostGeoOptimizer::Merge(const uint32_t* slots, size_t n, const GeoExchange& sent,
                                     const GeoExchange& server) {
  for (size_t i = 0; i < n; ++i) {
    FetchAhead(values_, stride_, slots, n, i);
    FetchAhead(bases_, dim_, slots, n, i);
    MergeValues(local_row(slots[i]), base_row(slots[i]), sent.rows + i * dim_,
                server.rows + i * dim_, dim_);
  }
  for (size_t i = 0; i < dense_.size(); ++i) {
    MergeValues(dense_[i].local.data(), dense_[i].base.data(), sent.dense[i], server.dense[i],
                dense_[i].local.size());
  }
  return absl::OkStatus();
}

absl::Status HostGeoOptimizer::ReadRowState(uint32_t first, size_t n, float* state) {
  const size_t floats = stride_ - dim_;
  for (size_t i = 0; i < n && floats > 0; ++i)
    std::memcpy(state + i * floats, state_row(first + i), floats * sizeof(float));
  return absl::OkStatus();
}

absl::Status HostGeoOptimizer::WriteRowState(uint32_t first, size_t n, const float* state) {
  const size_t floats = stride_ - dim_;
  ReserveSlots(first + n);
  for (size_t i = 0; i < n && floats > 0; ++i)
    std::memcpy(state_row(first + i), state + i * floats, floats * sizeof(float));
  return absl::OkStatus();
}

absl::Status HostGeoOptimizer::ReadDenseState(size_t table, size_t first, size_t n, float* state) {
  std::copy_n(dense_[table].state.data() + first, n, state);
  return absl::OkStatus();
}

absl::Status HostGeoOptimizer::WriteDenseState(size_t table, size_t first, size_t n,
                                               const float* state) {
  std::copy_n(state, n, dense_[table].state.data() + first);
  return absl::OkStatus();
}

}  // namespace sluice
