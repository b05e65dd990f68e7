#include "cli/plan/measured_run.h"

#include <algorithm>

namespace sluice::plan {

void AddWorkerPage(const MetricsPage& page, JobCounters* counters) {
  Reading& reading = counters->reading;
  reading.steps += page.Sum("sluice_worker_step");
  reading.examples += page.Sum("sluice_worker_examples_total");
  reading.worker_cpu_s += page.Sum("sluice_worker_cpu_seconds_total");
  counters->epoch = std::max(counters->epoch, page.Sum("sluice_worker_epoch"));
  const auto stages = page.By("sluice_worker_stage_seconds", "stage");
  for (const char* stage : {"pull_wait", "push_wait"}) {
    const auto it = stages.find(stage);
    if (it != stages.end()) reading.wait_s += it->second;
  }
}

void AddPserverPage(const MetricsPage& page, JobCounters* counters) {
  Reading& reading = counters->reading;
  TableMemory& memory = counters->memory;
  reading.pserver_cpu_s += page.Sum("sluice_pserver_cpu_seconds_total");
  reading.pushed_bytes += page.Sum("sluice_pserver_bytes_received_total");
  reading.pulled_bytes += page.Sum("sluice_pserver_bytes_sent_total");
  counters->shm_streams += page.Sum("sluice_pserver_shm_streams");
  double tables = 0;
  const auto rows = page.By("sluice_pserver_rows", "table");
  for (const auto& [table, bytes] : page.By("sluice_pserver_table_bytes", "table")) {
    (rows.count(table) > 0 ? memory.row_bytes : memory.dense_bytes) += bytes;
    tables += bytes;
  }
  memory.rows += page.Sum("sluice_pserver_rows");
  memory.process += std::max(0.0, page.Sum("sluice_pserver_memory_bytes") - tables);
  reading.rows = memory.rows;
}

void MeasuredRun::Add(double at_s, JobCounters counters) {
  counters.reading.at_s = at_s;
  readings.push_back(counters.reading);
  if (counters.epoch <= 1) first_pass.push_back(counters.reading);
  memory = counters.memory;
  shared_memory = counters.shm_streams > 0;
}

}  // namespace sluice::plan
