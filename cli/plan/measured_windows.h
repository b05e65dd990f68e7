// Turns readings of a running job's counters into the costs of a step.
//
// Thread safety: pure functions.
#pragma once

#include <vector>

#include "proto/plan.pb.h"

namespace sluice::plan {

// The counters at one moment: sums since the job's processes began.
struct Reading {
  double at_s = 0;
  double steps = 0, examples = 0;
  double wait_s = 0;  // of the worker, for pulls and pushes
  double worker_cpu_s = 0, pserver_cpu_s = 0;
  double pushed_bytes = 0, pulled_bytes = 0;
  double rows = 0;
};

// The costs of one step, as means over all readings.
struct StepMeans {
  double steps = 0, examples = 0, step_s = 0, wait_s = 0, worker_cpu_s = 0, pserver_cpu_s = 0;
  double pushed_bytes = 0, pulled_bytes = 0;
  // Relative: twice the standard error of the windows' mean times.
  double uncertainty = 0;
};

// All zero when there are fewer than two readings, or no step between the first and the last.
StepMeans MeansOf(const std::vector<Reading>& readings);

// The spread of the logarithm of a step's time around its median: half the distance between the
// quantiles 0.16 and 0.84, which a few very long steps do not change.
double SpreadOf(std::vector<double> step_seconds);

// The rows after `examples` examples. Rows grow as a power of the examples read (Heaps' law), at
// most as fast as the examples. `readings` are those of the first pass over the data.
double RowsAfter(const std::vector<Reading>& readings, double examples);

}  // namespace sluice::plan
