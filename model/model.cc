#include "model/model.h"

#include "common/base/status_macros.h"

namespace sluice {

// Each gets the spec that the function Create<Name>Spec of the same model has made.
#define SLUICE_MODEL(Name)                                                           \
  absl::StatusOr<std::unique_ptr<DenseNet>> Create##Name##Net(const ModelSpec& spec, \
                                                              const NetOptions& options);
#include "model/models.inc"
#undef SLUICE_MODEL

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
  return std::unique_ptr<Model>(new Model(std::move(spec), create_net));
}

}  // namespace sluice
