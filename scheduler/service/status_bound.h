// Keeps a cluster's status within the size of a message, so that it can always be sent.
//
// Thread safety: a free function, safe from any thread.
#pragma once

#include <cstddef>

#include "proto/scheduler.pb.h"

namespace sluice {

// Leaves out what operators miss least, until the status has at most `max_bytes`: single shards,
// whose tables have the sums; configurations and routes of jobs; the ends of texts that are longer
// than a sentence; workers' reports of jobs; tables of pservers; members that are gone; at last the
// oldest jobs, and members. Says so in the `doing` of a line of the scheduler, unless only single
// shards are missing.
void BoundStatus(size_t max_bytes, ClusterStatus* status);

}  // namespace sluice
