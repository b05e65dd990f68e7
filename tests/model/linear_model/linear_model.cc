#include "tests/model/linear_model/linear_model.h"

#include "absl/strings/str_cat.h"
#include "model/net/net_options.h"
#include "tests/model/linear_model/linear_net.h"
#include "tests/model/linear_model/linear_rules.h"
#include "tests/model/linear_model/linear_spec.h"

namespace sluice {
namespace {

// `spec` was made by LinearSpec::Create.
absl::StatusOr<std::unique_ptr<DenseNet>> CreateLinearNet(const ModelSpec& spec,
                                                          const NetOptions& options) {
  if (options.device.kind != ComputeDevice::kCpu) {
    return absl::UnimplementedError(
        absl::StrCat("a linear model computes on the CPU, not on ", NameOf(options.device)));
  }
  return std::make_unique<LinearNet>(spec.schema()->numerics().size(),
                                     static_cast<const LinearSpec&>(spec).has_bias());
}

}  // namespace

ModelEntry LinearModel() {
  return {"linear", std::make_shared<LinearRules>(), &LinearSpec::Create, &CreateLinearNet};
}

}  // namespace sluice
