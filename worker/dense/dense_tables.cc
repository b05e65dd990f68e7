#include "worker/dense/dense_tables.h"

#include <functional>
#include <numeric>

#include "common/optimizer/frozen_rule.h"

namespace sluice {
namespace {

std::vector<size_t> AllOf(const Model& model) {
  std::vector<size_t> indices(model.dense_tables().size());
  std::iota(indices.begin(), indices.end(), size_t{0});
  return indices;
}

size_t ElementsOf(const TableConfig& table) {
  return std::accumulate(table.shape().begin(), table.shape().end(), size_t{1},
                         std::multiplies<size_t>());
}

}  // namespace

bool IsFrozenTable(const TableConfig& table) {
  return table.kind() == TableConfig::DENSE && table.update_at() == TableConfig::PSERVER &&
         IsFrozen(table.optimizer());
}

PserverDenseTables::PserverDenseTables(const Model* model)
    : PserverDenseTables(model, AllOf(*model)) {}

void PserverDenseTables::AddToPull(StepBuffers* values, PullRequest* pull) const {
  const std::vector<int>& tables = model_->dense_tables();
  for (const size_t i : indices_) {
    if (IsFrozenTable(ConfigOf(i))) {
      if (!frozen_[i].empty()) continue;
      // Each pull has memory of its own: a later one may end while a step reads the first.
      values->dense[i].resize(ElementsOf(ConfigOf(i)));
    }
    pull->dense.push_back({static_cast<uint32_t>(tables[i]), values->dense[i].data()});
  }
}

std::vector<const float*> PserverDenseTables::ValuesOf(const StepBuffers& pulled) const {
  std::vector<const float*> values;
  for (size_t i = 0; i < pulled.dense.size(); ++i) {
    const bool frozen = IsFrozenTable(ConfigOf(i));
    if (frozen && frozen_[i].empty()) frozen_[i] = pulled.dense[i];
    values.push_back(frozen ? frozen_[i].data() : pulled.dense[i].data());
  }
  return values;
}

void PserverDenseTables::AddToPush(const StepBuffers* gradients, PushRequest* push) const {
  const std::vector<int>& tables = model_->dense_tables();
  for (const size_t i : indices_) {
    const bool none = gradients == nullptr || IsFrozenTable(ConfigOf(i));
    push->dense.push_back(
        {static_cast<uint32_t>(tables[i]), none ? nullptr : gradients->dense[i].data()});
  }
}

}  // namespace sluice
