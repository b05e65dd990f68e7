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

HostGeoOptimizer::HostGeoOptimizer(const std::vector<const TableLayout*>& dense,
                                   const std::vector<const TableLayout*>& sparse) {
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
  for (const TableLayout* layout : sparse) {
    Rows table;
    table.layout = layout;
    table.dim = layout->dim();
    table.stride = layout->dim() + layout->state_floats();
    rows_.push_back(std::move(table));
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

void HostGeoOptimizer::Rows::InitState(uint32_t slot) {
  for (const TableLayout::Column& column : layout->columns()) {
    float* arrays[UpdateRule::kMaxState];
    StatePointers(state(slot) + column.state_begin, column.rule->state_floats(), column.dim,
                  arrays);
    column.rule->InitState(arrays, column.dim);
  }
}

void HostGeoOptimizer::Rows::Reserve(size_t slots) {
  // Values and state of a row lie side by side, because an update touches both. Bases are apart:
  // only exchanges read them.
  if (values.size() >= slots * stride) return;
  values.resize(slots * stride);
  bases.resize(slots * dim);
}

absl::Status HostGeoOptimizer::FillRows(size_t table, GeoSlots rows, const uint8_t* fresh,
                                        const float* values) {
  const auto [slots, n] = rows;
  if (n == 0) return absl::OkStatus();
  Rows& to = rows_[table];
  to.Reserve(size_t{*std::max_element(slots, slots + n)} + 1);
  for (size_t i = 0; i < n; ++i) {
    std::memcpy(to.local(slots[i]), values + i * to.dim, to.dim * sizeof(float));
    std::memcpy(to.base(slots[i]), values + i * to.dim, to.dim * sizeof(float));
    // A row that was here before keeps its optimizer state; only its values are the server's again.
    if (fresh[i]) to.InitState(slots[i]);
  }
  return absl::OkStatus();
}

void HostGeoOptimizer::GatherRows(size_t table, GeoSlots rows, float* values) const {
  const auto [slots, n] = rows;
  const Rows& from = rows_[table];
  for (size_t i = 0; i < n; ++i) {
    FetchAhead(from.values, from.stride, slots, n, i);
    std::memcpy(values + i * from.dim, &from.values[slots[i] * from.stride],
                from.dim * sizeof(float));
  }
}

bool HostGeoOptimizer::Rows::Update(uint32_t slot, const float* gradient,
                                    const std::vector<float>& rates, uint64_t count) {
  const float* rate = rates.data();
  bool finite = true;
  for (const TableLayout::Column& column : layout->columns()) {
    float* arrays[UpdateRule::kMaxState];
    StatePointers(state(slot) + column.state_begin, column.rule->state_floats(), column.dim,
                  arrays);
    finite &= column.rule->Apply(local(slot) + column.begin, arrays, gradient + column.begin,
                                 column.dim, column.dim, *rate++, count);
  }
  return finite;
}

void HostGeoOptimizer::UpdateRows(const GeoUpdate& update, size_t table) {
  Rows& rows = rows_[table];
  // A rate depends on the step alone, so it is computed once and not for each row.
  rates_.clear();
  for (const TableLayout::Column& column : rows.layout->columns())
    rates_.push_back(Rate(column.optimizer, update.schedule_step));
  const GeoUpdate::Rows& from = update.rows[table];
  for (size_t i = 0; i < from.n; ++i) {
    // Slots are in no order, so each row is a cache miss unless it is fetched ahead.
    FetchAhead(rows.values, rows.stride, from.slots, from.n, i);
    if (!rows.Update(from.slots[i], from.gradients + i * rows.dim, rates_, from.counts[i]) &&
        !broken_row_.has_value()) {
      broken_row_ = BrokenRow{table, i};
    }
  }
}

absl::Status HostGeoOptimizer::Update(const GeoUpdate& update) {
  broken_row_.reset();
  for (size_t table = 0; table < rows_.size(); ++table) UpdateRows(update, table);
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

absl::Status HostGeoOptimizer::TakeDelta(const std::vector<GeoSlots>& rows,
                                         const GeoExchange& delta) {
  for (size_t table = 0; table < rows_.size(); ++table) {
    Rows& from = rows_[table];
    const auto [slots, n] = rows[table];
    for (size_t i = 0; i < n; ++i) {
      FetchAhead(from.values, from.stride, slots, n, i);
      FetchAhead(from.bases, from.dim, slots, n, i);
      Difference(from.local(slots[i]), from.base(slots[i]), from.dim,
                 delta.rows[table] + i * from.dim);
    }
  }
  for (size_t i = 0; i < dense_.size(); ++i) {
    Difference(dense_[i].local.data(), dense_[i].base.data(), dense_[i].local.size(),
               delta.dense[i]);
  }
  return absl::OkStatus();
}

absl::Status HostGeoOptimizer::Merge(const std::vector<GeoSlots>& rows, const GeoExchange& sent,
                                     const GeoExchange& server) {
  for (size_t table = 0; table < rows_.size(); ++table) {
    Rows& to = rows_[table];
    const auto [slots, n] = rows[table];
    for (size_t i = 0; i < n; ++i) {
      FetchAhead(to.values, to.stride, slots, n, i);
      FetchAhead(to.bases, to.dim, slots, n, i);
      MergeValues(to.local(slots[i]), to.base(slots[i]), sent.rows[table] + i * to.dim,
                  server.rows[table] + i * to.dim, to.dim);
    }
  }
  for (size_t i = 0; i < dense_.size(); ++i) {
    MergeValues(dense_[i].local.data(), dense_[i].base.data(), sent.dense[i], server.dense[i],
                dense_[i].local.size());
  }
  return absl::OkStatus();
}

absl::Status HostGeoOptimizer::ReadRowState(size_t table, uint32_t first, size_t n, float* state) {
  Rows& from = rows_[table];
  const size_t floats = from.stride - from.dim;
  for (size_t i = 0; i < n && floats > 0; ++i)
    std::memcpy(state + i * floats, from.state(first + i), floats * sizeof(float));
  return absl::OkStatus();
}

absl::Status HostGeoOptimizer::WriteRowState(size_t table, uint32_t first, size_t n,
                                             const float* state) {
  Rows& to = rows_[table];
  const size_t floats = to.stride - to.dim;
  to.Reserve(first + n);
  for (size_t i = 0; i < n && floats > 0; ++i)
    std::memcpy(to.state(first + i), state + i * floats, floats * sizeof(float));
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
