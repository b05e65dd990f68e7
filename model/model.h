// A job's model as a worker uses it: its features, its tables, and its networks and their options.
//
// Thread safety:
//   immutable; each DenseNet belongs to one thread.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "model/model_spec.h"
#include "model/net/dense_net.h"
#include "model/net/net_options.h"
#include "proto/config.pb.h"

namespace sluice {

class Model : public ModelSpec {
 public:
  // As ModelSpec::Create; also FAILED_PRECONDITION if `models` is a list without networks.
  static absl::StatusOr<std::unique_ptr<Model>> Create(const JobConfig& job,
                                                       const ModelList& models);

  // Makes a network on options.device. model/net/cuda/cuda_device.h lists the errors of CUDA
  // devices.
  virtual absl::StatusOr<std::unique_ptr<DenseNet>> CreateNet(const NetOptions& options) const = 0;
};

// `job` must be effective (job_config.h). INVALID_ARGUMENT names a field that `device` does not
// support, and the fix.
absl::StatusOr<NetOptions> NetOptionsOf(const JobConfig& job, const ComputeDevice& device,
                                        int threads);

}  // namespace sluice
