// Publishes a change of a running job's route or of its ranks' lives: the one way in which both
// change while the job runs.
//
// The generation rises, so that every pserver takes the change over before it admits another
// request, and requests of the old generation are refused. Workers then fetch the route, and send
// what the present owners of shards have not acknowledged.
//
// Thread safety: a free function for the scheduler's thread.
#pragma once

#include "scheduler/core_effects.h"
#include "scheduler/job.h"
#include "scheduler/membership.h"

namespace sluice {

// Raises the generation of job->spec, names the present life of every rank in it, and tells the
// pservers. The caller has changed the route or the ranks.
void PublishRouteChange(Job* job, Membership* members, CoreEffects* effects);

}  // namespace sluice
