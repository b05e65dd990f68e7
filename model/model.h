// A job's model as a worker uses it: its features and tables (model_spec.h), and its networks.
//
// Thread safety:
//   immutable; a DenseNet belongs to one thread.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "model/model_spec.h"
#include "model/net/dense_net.h"
#include "model/net/net_options.h"

namespace sluice {

class Model {
 public:
  // As ModelSpec::Create.
  static absl::StatusOr<std::unique_ptr<Model>> Create(const JobConfig& job);

  const std::shared_ptr<const FeatureSchema>& schema() const { return spec_->schema(); }
  const std::vector<TableConfig>& tables() const { return spec_->tables(); }
  int sparse_table() const { return spec_->sparse_table(); }
  const std::vector<int>& dense_tables() const { return spec_->dense_tables(); }

  // A network on options.device. model/net/cuda/cuda_device.h says how a CUDA device can fail.
  absl::StatusOr<std::unique_ptr<DenseNet>> CreateNet(const NetOptions& options) const {
    return create_net_(*spec_, options);
  }

 private:
  using CreateNetFunction = absl::StatusOr<std::unique_ptr<DenseNet>> (*)(const ModelSpec&,
                                                                          const NetOptions&);
  Model(std::unique_ptr<ModelSpec> spec, CreateNetFunction create_net)
      : spec_(std::move(spec)), create_net_(create_net) {}

  const std::unique_ptr<ModelSpec> spec_;
  const CreateNetFunction create_net_;
};

}  // namespace sluice
