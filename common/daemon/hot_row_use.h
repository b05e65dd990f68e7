// Sums, means and a description of how caches of hot rows were used.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <string>

#include "proto/scheduler.pb.h"

namespace sluice {

// Adds the figures of more steps or of another worker.
void Add(const HotRowUse& more, HotRowUse* sum);
// The share of hits and the mean staleness of all uses; both are 0 when there are none.
double HitShare(const HotRowUse& use);
double MeanStaleness(const HotRowUse& use);
// "hot rows 61.2% used again, 3.1 steps old (at most 8)", and how many batches were pulled whole.
std::string Describe(const HotRowUse& use);

}  // namespace sluice
