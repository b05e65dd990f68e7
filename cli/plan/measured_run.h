// Collects what the daemons of a measured job count on their /metrics pages.
//
// Thread safety: plain data and pure functions.
#pragma once

#include <vector>

#include "cli/plan/measured_windows.h"
#include "cli/plan/metrics_page.h"

namespace sluice::plan {

// The memory of all pservers together. `process`: what their processes use besides the tables.
struct TableMemory {
  double dense_bytes = 0, rows = 0, row_bytes = 0, process = 0;
};

// The sums over the pages of all daemons at one moment.
struct JobCounters {
  Reading reading;  // at_s is 0
  TableMemory memory;
  double epoch = 0;        // of the worker, from 1
  double shm_streams = 0;  // of the pservers
};
void AddWorkerPage(const MetricsPage& page, JobCounters* counters);
void AddPserverPage(const MetricsPage& page, JobCounters* counters);

struct MeasuredRun {
  std::vector<Reading> readings;
  std::vector<Reading> first_pass;  // over the sample, from its beginning
  std::vector<double> step_seconds;
  TableMemory memory;          // at the last reading
  bool shared_memory = false;  // carried the data between worker and pservers; otherwise gRPC did

  void Add(double at_s, JobCounters counters);
};

}  // namespace sluice::plan
