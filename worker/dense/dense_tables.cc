#include "worker/dense/dense_tables.h"

#include <numeric>

namespace sluice {
namespace {

std::vector<size_t> AllOf(const Model& model) {
  std::vector<size_t> indices(model.dense_tables().size());
  std::iota(indices.begin(), indices.end(), size_t{0});
  return indices;
}

}  // namespace

PserverDenseTables::PserverDenseTables(const Model* model)
    : PserverDenseTables(model, AllOf(*model)) {}

void PserverDenseTables::AddToPull(StepBuffers* values, PullRequest* pull) const {
  const std::vector<int>& tables = model_->dense_tables();
  for (const size_t i : indices_)
    pull->dense.push_back({static_cast<uint32_t>(tables[i]), values->dense[i].data()});
}

std::vector<const float*> PserverDenseTables::ValuesOf(const StepBuffers& pulled) const {
  std::vector<const float*> values;
  for (const std::vector<float>& table : pulled.dense) values.push_back(table.data());
  return values;
}

void PserverDenseTables::AddToPush(const StepBuffers* gradients, PushRequest* push) const {
  const std::vector<int>& tables = model_->dense_tables();
  for (const size_t i : indices_) {
    push->dense.push_back({static_cast<uint32_t>(tables[i]),
                           gradients == nullptr ? nullptr : gradients->dense[i].data()});
  }
}

}  // namespace sluice
