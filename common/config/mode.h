// How the workers of a job synchronize: sync, async or Geo.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstdint>

#include "proto/config.pb.h"

namespace sluice {

enum class Mode { kSync, kAsync, kGeo };
const char* ModeName(Mode mode);  // "sync", "async", "geo"
Mode ModeOf(const StrategyConfig& strategy);
inline uint32_t KSteps(const StrategyConfig& s) { return s.a_sync_configs().k_steps(); }

}  // namespace sluice
