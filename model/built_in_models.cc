#include "model/built_in_models.h"

#include <utility>

#include "model/net/dense_net.h"
#include "model/net/net_options.h"

namespace sluice {

// Declared here instead of included, so that only models.inc names the models.
#define SLUICE_MODEL(Name)                                                           \
  ModelEntry Name##Model();                                                          \
  absl::StatusOr<std::unique_ptr<DenseNet>> Create##Name##Net(const ModelSpec& spec, \
                                                              const NetOptions& options);
#define SLUICE_SPEC(Name) ModelEntry Name##Model();
#include "model/models.inc"
#undef SLUICE_MODEL
#undef SLUICE_SPEC

namespace {

ModelEntry WithNet(ModelEntry entry, decltype(ModelEntry::create_net) create_net) {
  entry.create_net = create_net;
  return entry;
}

}  // namespace

const ModelList& BuiltInModels() {
  static const auto* const models = new ModelList({
#define SLUICE_MODEL(Name) WithNet(Name##Model(), &Create##Name##Net),
#define SLUICE_SPEC(Name) Name##Model(),
#include "model/models.inc"
#undef SLUICE_MODEL
#undef SLUICE_SPEC
  });
  return *models;
}

}  // namespace sluice
