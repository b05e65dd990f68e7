#include "common/config/mode.h"

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

}  // namespace sluice
