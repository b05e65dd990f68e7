// Simulates jobs of up to thousands of workers and pservers, each on a host of its own, from the
// measured costs of one worker's step (plan_model.h).
//
// A worker's time to compute is drawn from a lognormal distribution with the measured spread. Its
// frame is cut evenly over the pservers, so all pservers have the same queues, and one of each is
// simulated: for the link into a pserver, its threads, and the link out of it. They serve in the
// order of arrival. No frame is faster than the worker's own link. In sync all workers begin a step
// together; the step closes when the last push has arrived.
//
// Without spread, the time of one worker, and of sync with any number of workers, equals that of
// the formulas in plan_model.h.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/plan/plan_model.h"
#include "proto/plan.pb.h"

namespace sluice::plan {

struct Simulation {
  Network network;
  double cores = 16;  // of each host
  uint64_t seed = 1;
  uint32_t steps = 30;  // of each worker; few workers make more, so that means are over many steps
};

// Examples per second; 0 when the costs do not have the mode, or when there are no pservers and the
// mode needs them.
double Simulate(const PlanCosts& costs, PlanMode mode, uint32_t workers, uint32_t pservers,
                const Simulation& simulation);

ScalingPoint SimulateAll(const PlanCosts& costs, uint32_t workers, uint32_t pservers,
                         const Simulation& simulation);

// The rate of `workers` workers that never wait.
double IdealRate(const PlanCosts& costs, uint32_t workers, double cores);

// The least number of workers, up to `most`, with which `mode`, sync or collective, trains at less
// than half of the ideal rate; 0: there is none.
uint32_t WorkersAtHalfOfIdeal(const PlanCosts& costs, PlanMode mode, uint32_t pservers,
                              uint32_t most, const Simulation& simulation);

}  // namespace sluice::plan
