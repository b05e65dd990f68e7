// The counting model in place of the shipped ones. A program that links this file as an object gets
// these lists: the linker then does not take those of the libraries.
#include "model/built_in_models.h"
#include "tests/model/counting_model/counting_model.h"

namespace sluice {

const ModelList& BuiltInSpecs() { return BuiltInModels(); }

const ModelList& BuiltInModels() {
  static const auto* const models = new ModelList({CountingModel()});
  return *models;
}

}  // namespace sluice
