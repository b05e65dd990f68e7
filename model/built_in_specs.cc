#include "model/built_in_models.h"

namespace sluice {

#define SLUICE_MODEL(Name) ModelEntry Name##Model();
#define SLUICE_SPEC(Name) ModelEntry Name##Model();
#include "model/models.inc"
#undef SLUICE_MODEL
#undef SLUICE_SPEC

const ModelList& BuiltInSpecs() {
  static const auto* const models = new ModelList({
#define SLUICE_MODEL(Name) Name##Model(),
#define SLUICE_SPEC(Name) Name##Model(),
#include "model/models.inc"
#undef SLUICE_MODEL
#undef SLUICE_SPEC
  });
  return *models;
}

}  // namespace sluice
