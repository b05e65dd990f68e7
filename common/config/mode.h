// How the workers of a job synchronize: sync, async or Geo; and whether they keep dense tables.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstdint>

#include "proto/config.pb.h"

namespace sluice {

enum class Mode { kSync, kAsync, kGeo };
const char* ModeName(Mode mode);  // "sync", "async", "geo"
Mode ModeOf(const StrategyConfig& strategy);
// True when a sync job says that workers keep dense tables: all of them (sync_configs.dense) or
// single ones (tables.update_at). The model's spec has the tables.
bool WorkersKeepDenseTables(const JobConfig& job);
inline uint32_t KSteps(const StrategyConfig& s) { return s.a_sync_configs().k_steps(); }

}  // namespace sluice
