#include "worker/mixed_dense_tables.h"

#include <utility>

namespace sluice {

MixedDenseTables::MixedDenseTables(Options options)
    : on_workers_(std::move(options.on_workers)),
      pservers_(std::move(options.pservers)),
      workers_(std::move(options.workers)) {}

void MixedDenseTables::AddToPull(StepBuffers* values, PullRequest* pull) const {
  pservers_->AddToPull(values, pull);
}

std::vector<const float*> MixedDenseTables::ValuesOf(const StepBuffers& pulled) const {
  std::vector<const float*> values = pservers_->ValuesOf(pulled);
  const std::vector<const float*> kept = workers_->ValuesOf(pulled);
  auto next = kept.begin();
  for (size_t i = 0; i < on_workers_.size(); ++i)
    if (on_workers_[i]) values[i] = *next++;
  return values;
}

void MixedDenseTables::AddToPush(const StepBuffers* gradients, PushRequest* push) const {
  pservers_->AddToPush(gradients, push);
}

void MixedDenseTables::Ready(const StepBuffers& gradients, double weight, size_t i) {
  if (on_workers_[i]) workers_->Ready(gradients, weight, i);
}

void MixedDenseTables::Send(uint64_t step, const StepBuffers* gradients, double weight) {
  workers_->Send(step, gradients, weight);
}

absl::Status MixedDenseTables::Exchange(uint64_t step, const StepBuffers* gradients,
                                        double weight) {
  return workers_->Exchange(step, gradients, weight);
}

absl::StatusOr<std::vector<SavedFile>> MixedDenseTables::SaveModel(const std::string& directory,
                                                                   const std::string& save_id) {
  return workers_->SaveModel(directory, save_id);
}

void MixedDenseTables::SaveCheckpoint(uint64_t number, uint64_t step, Saved done) {
  workers_->SaveCheckpoint(number, step, std::move(done));
}

}  // namespace sluice
