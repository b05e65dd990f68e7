#include "tests/model/counting_model/counting_model.h"

#include "absl/strings/str_cat.h"
#include "model/net/net_options.h"
#include "tests/model/counting_model/counting_net.h"
#include "tests/model/counting_model/counting_spec.h"

namespace sluice {
namespace {

// The model has no options.
class CountingRules : public ModelRules {
 public:
  void FillDefaults(JobConfig*) const override {}
  ModelParts PartsOf(const JobConfig&) const override {
    ModelParts parts;
    parts.no_embedding = "has no effect: a counting model has no embedding; remove it";
    return parts;
  }
  std::vector<ConfigProblem> FindProblems(const JobConfig&) const override { return {}; }
  std::vector<ConfigProblem> FindUnused(const JobConfig& job) const override {
    if (job.model().custom().options().empty()) return {};
    return {{"model.custom.options", "has no effect: a counting model has no options; remove it"}};
  }
};

absl::StatusOr<std::unique_ptr<DenseNet>> CreateCountingNet(const ModelSpec& spec,
                                                            const NetOptions& options) {
  if (options.device.kind != ComputeDevice::kCpu) {
    return absl::UnimplementedError(
        absl::StrCat("a counting model computes on the CPU, not on ", NameOf(options.device)));
  }
  return std::make_unique<CountingNet>(spec.schema()->numerics().size(),
                                       spec.dense_tables().size());
}

}  // namespace

ModelEntry CountingModel() {
  return {"counting", std::make_shared<CountingRules>(), &CountingSpec::Create, &CreateCountingNet};
}

}  // namespace sluice
