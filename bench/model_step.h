// Runs forward and backward of one batch in this process, for a job on data of the standard shape.
//
// Thread safety: plain data.
//
// Memory: values and gradients of the batch's rows and of all tensors.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "model/model.h"
#include "proto/config.pb.h"

namespace sluice::bench {

class ModelStep {
 public:
  // A batch of `batch` examples; chunk as in Batch.
  static absl::StatusOr<std::unique_ptr<ModelStep>> Create(const JobConfig& job, size_t batch,
                                                           size_t chunk);

  const Model& model() const { return *model_; }
  const NetInput& input() const { return input_; }
  NetGradients* gradients() { return &gradients_; }
  // Keeps rows and their gradients in `memory` from now on, as a worker does; null: in any memory.
  void PutRowsInto(const std::shared_ptr<HostMemory>& memory);
  // The bytes that a step takes (batch with row numbers, and values) and gives (gradients).
  size_t bytes_up() const;
  size_t bytes_down() const;

 private:
  // The rows of a sparse table and their gradients: [rows of the batch][dim].
  struct RowTable {
    size_t dim = 0;
    std::unique_ptr<HostArray> rows = std::make_unique<HostArray>();
    std::unique_ptr<HostArray> gradients = std::make_unique<HostArray>();
  };

  void Fill(size_t n, size_t chunk);
  size_t row_floats() const;
  // Makes the keys of dense features their rows.
  void UseRows();

  std::unique_ptr<Model> model_;
  Batch batch_;
  std::vector<uint32_t> row_index_;
  std::vector<RowTable> tables_;  // by Model::sparse_tables()
  std::vector<std::vector<float>> dense_, dense_gradients_;
  NetInput input_;
  NetGradients gradients_;
};

}  // namespace sluice::bench
