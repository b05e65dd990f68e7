// Chooses pservers and workers for each number of processes, and the best of them.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/plan/plan_model.h"
#include "proto/config.pb.h"
#include "proto/plan.pb.h"

namespace sluice::plan {

struct PlanQuestion {
  PlanMode mode = PlanMode::kAsync;
  std::vector<PlanHost> hosts;  // with names and cores; empty: every process has a host of its own
  double cores = 1;             // of each host when `hosts` is empty
  Network network;
  // The numbers to choose from. Both empty: numbers of processes up to the cores of the hosts and
  // one more for each. When only one is given, the other is chosen.
  std::vector<uint32_t> workers, pservers;
};

// One row for each number of processes, or for each pair when the question names both workers and
// pservers. At least one process is a pserver, except in collective mode where workers keep all
// tables. The best row has the fewest processes of those that reach 95 % of the highest rate of the
// question's mode.
Plan AnswerPlan(const PlanCosts& costs, const PlanQuestion& question);

// The best number of pservers, which may be 0, for `workers` workers on one host.
uint32_t PserversFor(const PlanCosts& costs, PlanMode mode, uint32_t workers, uint32_t cores);

const PlanPrediction& PredictionOf(const PlanRow& row, PlanMode mode);

// The cluster of the best row. Its scheduler has port `port`, and the pservers of a host have the
// ports from `port` + 100.
// INVALID_ARGUMENT when the plan names no hosts.
absl::StatusOr<ClusterConfig> ClusterOf(const Plan& plan, uint32_t port);

}  // namespace sluice::plan
