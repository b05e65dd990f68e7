#include "bench/model_step.h"

#include <algorithm>

#include "bench/standard_model.h"
#include "common/base/status_macros.h"
#include "common/config/job_config.h"
#include "model/built_in_models.h"

namespace sluice::bench {

absl::StatusOr<std::unique_ptr<ModelStep>> ModelStep::Create(const JobConfig& job, size_t batch,
                                                             size_t chunk) {
  SLUICE_ASSIGN_OR_RETURN(const JobConfig effective, EffectiveJobConfig(job, "", BuiltInModels()));
  auto step = std::make_unique<ModelStep>();
  SLUICE_ASSIGN_OR_RETURN(step->model_, Model::Create(effective, BuiltInModels()));
  step->Fill(batch, chunk);
  return step;
}

void ModelStep::Fill(size_t n, size_t chunk) {
  const size_t rows = MakeStandardBatch(n, &batch_, &row_index_);
  UseRows();
  batch_.chunk = chunk;
  for (const int table : model_->dense_tables()) {
    size_t elements = 1;
    for (const uint64_t size : model_->tables()[table].shape()) elements *= size;
    dense_.emplace_back(elements);
    for (size_t i = 0; i < elements; ++i)
      dense_.back()[i] = static_cast<float>(i * 37 % 64) * 2e-3f - 0.063f;
  }
  dense_gradients_ = dense_;
  input_.batch = &batch_;
  input_.row_index = row_index_.data();
  for (const int table : model_->sparse_tables()) {
    RowTable to;
    for (const ColumnGroup& column : model_->tables()[table].columns()) to.dim += column.dim();
    tables_.push_back(std::move(to));
    // A row number is that of one table alone, so every table has room for all of them.
    input_.rows.emplace_back().n = rows;
  }
  gradients_.rows.resize(tables_.size());
  PutRowsInto(nullptr);
  for (size_t i = 0; i < dense_.size(); ++i) {
    input_.dense.push_back(dense_[i].data());
    gradients_.dense.push_back(dense_gradients_[i].data());
  }
}

void ModelStep::UseRows() {
  const std::vector<FeatureSchema::Slot>& slots = model_->schema()->slots();
  for (size_t cell = 0; cell + 1 < batch_.key_offsets.size(); ++cell) {
    const RowRange& rows = slots[cell % batch_.num_slots].rows;
    for (uint32_t k = batch_.key_offsets[cell]; k < batch_.key_offsets[cell + 1]; ++k) {
      if (!rows.empty()) batch_.keys[k] = rows.begin + batch_.keys[k] % rows.size();
    }
  }
}

void ModelStep::PutRowsInto(const std::shared_ptr<HostMemory>& memory) {
  for (size_t t = 0; t < tables_.size(); ++t) {
    RowTable& table = tables_[t];
    const size_t n = input_.rows[t].n * table.dim;
    for (HostArray* array : {table.rows.get(), table.gradients.get()}) {
      array->Clear();
      array->Resize(n, memory);
      std::fill(array->begin(), array->end(), 0.0f);
    }
    float* const rows = table.rows->data();
    for (size_t i = 0; i < n; ++i) rows[i] = static_cast<float>(i % 64) * 1e-3f - 0.032f;
    input_.rows[t].values = rows;
    gradients_.rows[t] = table.gradients->data();
  }
}

size_t ModelStep::row_floats() const {
  size_t floats = 0;
  for (const RowTable& table : tables_) floats += table.rows->size();
  return floats;
}

size_t ModelStep::bytes_up() const {
  size_t floats = 2 * batch_.n + batch_.numeric.size() + row_floats();
  for (const auto& tensor : dense_) floats += tensor.size();
  return 4 * (floats + batch_.key_offsets.size() + row_index_.size());
}

size_t ModelStep::bytes_down() const {
  size_t floats = row_floats();
  for (const auto& tensor : dense_) floats += tensor.size();
  return 4 * floats;
}

}  // namespace sluice::bench
