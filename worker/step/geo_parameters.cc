#include "worker/step/geo_parameters.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/daemon/hot_row_use.h"
#include "common/table/not_finite.h"

namespace sluice {
namespace {

constexpr size_t kDenseStateChunk = 64 << 10;  // floats that are saved or restored at a time

GeoExchange View(GeoParameters::Values* values) {
  GeoExchange view;
  for (std::vector<float>& table : values->rows) view.rows.push_back(table.data());
  for (std::vector<float>& table : values->dense) view.dense.push_back(table.data());
  return view;
}

}  // namespace

GeoParameters::GeoParameters(std::vector<const TableLayout*> dense,
                             const std::vector<const TableLayout*>& sparse, uint64_t max_rows,
                             std::unique_ptr<GeoOptimizer> values)
    : dense_(std::move(dense)), optimizer_(std::move(values)) {
  if (optimizer_ == nullptr) {
    auto host = std::make_unique<HostGeoOptimizer>(dense_, sparse);
    host_ = host.get();
    optimizer_ = std::move(host);
  }
  for (size_t i = 0; i < sparse.size(); ++i)
    rows_.emplace_back(i, sparse[i], max_rows, optimizer_.get());
}

void GeoParameters::Find(const std::vector<KeySet>& keys, Found* found) const {
  found->resize(rows_.size());
  for (size_t i = 0; i < rows_.size(); ++i) rows_[i].Find(keys[i], &(*found)[i]);
}

HotRowUse GeoParameters::Use(const Found& found) {
  HotRowUse use;
  for (size_t i = 0; i < rows_.size(); ++i) Add(rows_[i].Use(found[i]), &use);
  return use;
}

absl::Status GeoParameters::Update(const Found& found, const std::vector<const float*>& rows,
                                   std::vector<const float*> dense, uint64_t schedule_step) {
  update_.rows.resize(rows_.size());
  for (size_t i = 0; i < rows_.size(); ++i) {
    update_.rows[i] = rows_[i].CountUpdate(found[i], schedule_step);
    if (!rows.empty()) update_.rows[i].gradients = rows[i];
  }
  update_.dense_count = ++dense_count_;
  update_.schedule_step = schedule_step;
  update_.dense = std::move(dense);
  SLUICE_RETURN_IF_ERROR(optimizer_->Update(update_));
  if (host_ == nullptr || !host_->broken_row().has_value()) return absl::OkStatus();
  return NotFinite(*host_->broken_row(), found);
}

absl::Status GeoParameters::NotFinite(const HostGeoOptimizer::BrokenRow& broken,
                                      const Found& found) const {
  const GeoRows& rows = rows_[broken.table];
  const uint32_t slot = found[broken.table].slots[broken.index];
  const size_t dim = rows.layout().dim();
  std::vector<float> row(dim + rows.layout().state_floats());
  host_->GatherRows(broken.table, {&slot, 1}, row.data());
  SLUICE_RETURN_IF_ERROR(host_->ReadRowState(broken.table, slot, 1, row.data() + dim));
  return RowNotFinite(rows.layout(), rows.KeyOf(slot), FirstNotFinite(row.data(), row.size()));
}

std::vector<GeoSlots> GeoParameters::sent() const {
  std::vector<GeoSlots> slots;
  for (const GeoRows& rows : rows_) slots.push_back(rows.sent());
  return slots;
}

absl::Status GeoParameters::TakeDelta(std::vector<KeySet>* keys, Values* delta) {
  keys->resize(rows_.size());
  delta->rows.resize(rows_.size());
  for (size_t i = 0; i < rows_.size(); ++i) {
    rows_[i].BeginExchange(&(*keys)[i]);
    delta->rows[i].resize(rows_[i].sent().n * rows_[i].layout().dim());
  }
  delta->dense.resize(dense_.size());
  for (size_t i = 0; i < dense_.size(); ++i) delta->dense[i].resize(dense_[i]->elements());
  return optimizer_->TakeDelta(sent(), View(delta));
}

absl::Status GeoParameters::Merge(Values* sent_values, Values* server) {
  SLUICE_RETURN_IF_ERROR(optimizer_->Merge(sent(), View(sent_values), View(server)));
  for (GeoRows& rows : rows_) rows.EndExchange();
  return absl::OkStatus();
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
      state.resize(std::min<uint64_t>(floats - at, kDenseStateChunk));
      SLUICE_RETURN_IF_ERROR(optimizer_->ReadDenseState(table, at, state.size(), state.data()));
      const size_t bad = FirstNotFinite(state.data(), state.size());
      if (bad < state.size()) {
        const uint64_t elements = dense_[table]->elements();
        return ElementNotFinite(*dense_[table], (at + bad) % elements, 1 + (at + bad) / elements);
      }
      SLUICE_RETURN_IF_ERROR(to->Append(state.data(), state.size() * sizeof(float)));
    }
  }
  for (const GeoRows& rows : rows_) SLUICE_RETURN_IF_ERROR(rows.SaveState(to));
  if (!rows_.empty()) return absl::OkStatus();
  SLUICE_RETURN_IF_ERROR(to->Put(uint64_t{0}));
  return to->Put(uint64_t{0});
}

absl::Status GeoParameters::RestoreState(GeoStateReader* from) {
  SLUICE_RETURN_IF_ERROR(RestoreDense(from));
  for (GeoRows& rows : rows_) SLUICE_RETURN_IF_ERROR(rows.RestoreState(from));
  if (!rows_.empty()) return absl::OkStatus();
  uint64_t floats = 0, rows = 0;
  SLUICE_RETURN_IF_ERROR(from->Get(&floats));
  SLUICE_RETURN_IF_ERROR(from->Get(&rows));
  if (floats == 0 && rows == 0) return absl::OkStatus();
  return from->Damaged(absl::StrCat("it has ", rows, " rows of ", floats,
                                    " floats of state, but the job has no sparse table"));
}

absl::Status GeoParameters::RestoreDense(GeoStateReader* from) {
  std::vector<float> state;
  uint64_t tables = 0, floats = 0;
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
      state.resize(std::min<uint64_t>(floats - at, kDenseStateChunk));
      SLUICE_RETURN_IF_ERROR(from->Read(state.data(), state.size() * sizeof(float)));
      SLUICE_RETURN_IF_ERROR(optimizer_->WriteDenseState(table, at, state.size(), state.data()));
    }
  }
  return absl::OkStatus();
}

}  // namespace sluice
