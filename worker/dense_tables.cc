#include "worker/dense_tables.h"

namespace sluice {

void PserverDenseTables::AddToPull(StepBuffers* values, PullRequest* pull) const {
  const std::vector<int>& tables = model_->dense_tables();
  for (size_t i = 0; i < tables.size(); ++i)
    pull->dense.push_back({static_cast<uint32_t>(tables[i]), values->dense[i].data()});
}

std::vector<const float*> PserverDenseTables::ValuesOf(const StepBuffers& pulled) const {
  std::vector<const float*> values;
  for (const std::vector<float>& table : pulled.dense) values.push_back(table.data());
  return values;
}

void PserverDenseTables::AddToPush(const StepBuffers* gradients, PushRequest* push) const {
  const std::vector<int>& tables = model_->dense_tables();
  for (size_t i = 0; i < tables.size(); ++i) {
    push->dense.push_back({static_cast<uint32_t>(tables[i]),
                           gradients == nullptr ? nullptr : gradients->dense[i].data()});
  }
}

}  // namespace sluice
