// Forward and backward of one batch of a job of the standard data's shape, in this process.
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
  // Rows and their gradients lie there from now on, as a worker's do; null: in any memory.
  void PutRowsInto(const std::shared_ptr<HostMemory>& memory);
  // Of what a step takes and gives: batch with row numbers and values; gradients.
  size_t bytes_up() const;
  size_t bytes_down() const;

 private:
  void Fill(size_t n, size_t chunk, size_t row_dim);

  std::unique_ptr<Model> model_;
  Batch batch_;
  std::vector<uint32_t> row_index_;
  HostArray rows_, row_gradients_;
  std::vector<std::vector<float>> dense_, dense_gradients_;
  size_t row_dim_ = 0;
  NetInput input_;
  NetGradients gradients_;
};

}  // namespace sluice::bench
