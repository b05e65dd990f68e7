// A job's model as a worker uses it: its features and tables, and its networks.
//
// Thread safety:
//   immutable; a DenseNet belongs to one thread.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "model/model_spec.h"
#include "model/net/dense_net.h"
#include "model/net/net_options.h"

namespace sluice {

class Model : public ModelSpec {
 public:
  // As ModelSpec::Create. FAILED_PRECONDITION when `models` is a list without networks.
  static absl::StatusOr<std::unique_ptr<Model>> Create(const JobConfig& job,
                                                       const ModelList& models);

  // A network on options.device. model/net/cuda/cuda_device.h says how a CUDA device can fail.
  virtual absl::StatusOr<std::unique_ptr<DenseNet>> CreateNet(const NetOptions& options) const = 0;
};

}  // namespace sluice
