#include "common/config/mode.h"

#include <algorithm>

namespace sluice {

const char* ModeName(Mode mode) {
  switch (mode) {
    case Mode::kSync:
      return "sync";
    case Mode::kAsync:
      return "async";
    case Mode::kGeo:
      return "geo";
  }
  return "unknown";
}

Mode ModeOf(const StrategyConfig& strategy) {
  // Absent means true.
  if (strategy.has_a_sync() && !strategy.a_sync()) return Mode::kSync;
  return strategy.a_sync_configs().k_steps() > 0 ? Mode::kGeo : Mode::kAsync;
}

bool WorkersKeepDenseTables(const JobConfig& job) {
  return job.strategy().sync_configs().dense() == SyncConfigs::COLLECTIVE ||
         std::any_of(job.tables().begin(), job.tables().end(), [](const TableConfig& table) {
           return table.update_at() == TableConfig::COLLECTIVE;
         });
}

}  // namespace sluice
