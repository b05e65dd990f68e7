#include "worker/make_dense_tables.h"

#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "worker/collective_dense_tables.h"
#include "worker/mixed_dense_tables.h"

namespace sluice {

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
