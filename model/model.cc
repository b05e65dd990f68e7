#include "model/model.h"

#include <utility>

#include "common/base/status_macros.h"

namespace sluice {

// Each gets the spec that the function Create<Name>Spec of the same model has made.
#define SLUICE_MODEL(Name)                                                           \
  absl::StatusOr<std::unique_ptr<DenseNet>> Create##Name##Net(const ModelSpec& spec, \
                                                              const NetOptions& options);
#include "model/models.inc"
#undef SLUICE_MODEL

namespace {

using CreateNetFunction = absl::StatusOr<std::unique_ptr<DenseNet>> (*)(const ModelSpec&,
                                                                        const NetOptions&);

// The spec of a model of models.inc, with the function that makes its networks.
class RegisteredModel : public Model {
 public:
  RegisteredModel(std::unique_ptr<ModelSpec> spec, CreateNetFunction create_net)
      : spec_(std::move(spec)), create_net_(create_net) {}

  const std::shared_ptr<const FeatureSchema>& schema() const override { return spec_->schema(); }
  const std::vector<TableConfig>& tables() const override { return spec_->tables(); }
  int sparse_table() const override { return spec_->sparse_table(); }
  const std::vector<int>& dense_tables() const override { return spec_->dense_tables(); }
  absl::StatusOr<std::unique_ptr<DenseNet>> CreateNet(const NetOptions& options) const override {
    return create_net_(*spec_, options);
  }

 private:
  const std::unique_ptr<ModelSpec> spec_;
  const CreateNetFunction create_net_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> Model::Create(const JobConfig& job) {
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<ModelSpec> spec, ModelSpec::Create(job));
  CreateNetFunction create_net = nullptr;
  switch (job.model().model_case()) {
#define SLUICE_MODEL(Name)          \
  case ModelConfig::k##Name:        \
    create_net = Create##Name##Net; \
    break;
#include "model/models.inc"
#undef SLUICE_MODEL
    default:
      break;  // ModelSpec::Create has refused it
  }
  return std::make_unique<RegisteredModel>(std::move(spec), create_net);
}

}  // namespace sluice
