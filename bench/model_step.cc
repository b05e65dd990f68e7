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
  size_t row_dim = 0;
  const int sparse = step->model_->sparse_table();
  if (sparse >= 0) {
    for (const ColumnGroup& column : step->model_->tables()[sparse].columns())
      row_dim += column.dim();
  }
  step->Fill(batch, chunk, row_dim);
  return step;
}

void ModelStep::Fill(size_t n, size_t chunk, size_t row_dim) {
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
  input_.num_rows = rows;
  row_dim_ = row_dim;
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
  const size_t n = input_.num_rows * row_dim_;
  for (HostArray* array : {&rows_, &row_gradients_}) {
    array->Clear();
    array->Resize(n, memory);
    std::fill(array->begin(), array->end(), 0.0f);
  }
  for (size_t i = 0; i < n; ++i) rows_.data()[i] = static_cast<float>(i % 64) * 1e-3f - 0.032f;
  input_.rows = rows_.data();
  gradients_.rows = row_gradients_.data();
}

size_t ModelStep::bytes_up() const {
  size_t floats = 2 * batch_.n + batch_.numeric.size() + rows_.size();
  for (const auto& tensor : dense_) floats += tensor.size();
  return 4 * (floats + batch_.key_offsets.size() + row_index_.size());
}

size_t ModelStep::bytes_down() const {
  size_t floats = rows_.size();
  for (const auto& tensor : dense_) floats += tensor.size();
  return 4 * floats;
}

}  // namespace sluice::bench
