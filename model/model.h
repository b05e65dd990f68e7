// A model: its features, its tables, and how to compute it. Models register with a factory; nothing
// outside model/ knows what wide_deep is.
//
// Thread safety: immutable; a DenseNet belongs to one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/features/feature_schema.h"
#include "model/net/dense_net.h"
#include "model/net/net_options.h"
#include "proto/config.pb.h"

namespace sluice {

class Model {
 public:
  // `job` must be effective (job_config.h). INVALID_ARGUMENT names field and fix.
  static absl::StatusOr<std::unique_ptr<Model>> Create(const JobConfig& job);
  virtual ~Model() = default;

  virtual const std::shared_ptr<const FeatureSchema>& schema() const = 0;

  // The job's tables with optimizers and initial values, overridden by job.tables() (an override of
  // a table that the model does not have is refused). At most one is sparse.
  virtual const std::vector<TableConfig>& tables() const = 0;
  // Index in tables() of the sparse table (-1: none) and of the dense ones in the net's order.
  virtual int sparse_table() const = 0;
  virtual const std::vector<int>& dense_tables() const = 0;

  // A network on options.device. What fails on a CUDA device: cuda/cuda_device.h.
  virtual absl::StatusOr<std::unique_ptr<DenseNet>> CreateNet(const NetOptions& options) const = 0;
};

// Fills num_shards of sparse tables left at 0: 4 x pservers, at least 16.
void ResolveShards(uint32_t num_pservers, google::protobuf::RepeatedPtrField<TableConfig>* tables);

}  // namespace sluice
