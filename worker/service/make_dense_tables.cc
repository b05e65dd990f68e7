#include "worker/service/make_dense_tables.h"

#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "worker/dense/collective_dense_tables.h"

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
  // The workers' part has only its own tables, in the order of all tables.
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

absl::StatusOr<JobDenseTables> MakeDenseTables(DenseTablesOptions options) {
  CollectiveDenseTables::Options kept;
  MixedDenseTables::Options mixed;
  std::vector<size_t> pulled;
  const std::vector<int>& tables = options.model->dense_tables();
  for (size_t i = 0; i < tables.size(); ++i) {
    const auto& table = options.layouts[tables[i]];
    mixed.on_workers.push_back(table->on_workers());
    (table->on_workers() ? kept.indices : pulled).push_back(i);
    if (table->on_workers()) kept.tables.push_back(table);
  }
  JobDenseTables made;
  if (kept.tables.empty()) {
    made.tables = std::make_unique<PserverDenseTables>(options.model);
    return made;
  }
  if (options.make_collective == nullptr) {
    return absl::FailedPreconditionError(
        "this worker has no engine for dense tables that workers keep (COLLECTIVE)");
  }
  // Only now: an engine takes sockets or shared memory, which a job without such tables does not
  // need.
  SLUICE_ASSIGN_OR_RETURN(kept.collective, options.make_collective(options.spec->config()));
  kept.spec = options.spec;
  kept.env = options.env;
  kept.rejoins = options.rejoins;
  kept.group = std::move(options.group);
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<CollectiveDenseTables> workers,
                          CollectiveDenseTables::Create(std::move(kept)));
  made.meetings = workers->meetings();
  if (pulled.empty()) {
    made.tables = std::move(workers);
    return made;
  }
  mixed.pservers = std::make_unique<PserverDenseTables>(options.model, std::move(pulled));
  mixed.workers = std::move(workers);
  made.tables = std::make_unique<MixedDenseTables>(std::move(mixed));
  return made;
}

}  // namespace sluice
