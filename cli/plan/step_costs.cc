#include "cli/plan/step_costs.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "cli/plan/measured_windows.h"
#include "common/config/mode.h"

namespace sluice::plan {
namespace {

// The CPU time of a frame at each end, apart from its bytes. An empty gRPC message and its answer
// take 45 us on an idle host.
constexpr double kUsualFrame = 30e-6, kMostFrame = 500e-6;
// Factor by which an index and room to grow enlarge the bytes of rows.
constexpr double kIndexOfRows = 1.25;

// The readings in the range of steps that both runs have: early steps make most rows.
std::vector<Reading> Shared(const std::vector<Reading>& readings,
                            const std::vector<Reading>& other) {
  std::vector<Reading> shared;
  for (const Reading& reading : readings) {
    if (reading.steps >= other.front().steps && reading.steps <= other.back().steps)
      shared.push_back(reading);
  }
  return shared;
}

void SetMemory(const DataSample& sample, const MeasuredRun& run, PlanCosts* costs) {
  const TableMemory& memory = run.memory;
  costs->set_dense_memory_bytes(memory.dense_bytes);
  costs->set_process_memory_bytes(memory.process);
  if (memory.rows <= 0) return;
  costs->set_row_memory_bytes(kIndexOfRows * memory.row_bytes / memory.rows);
  // A run that has passed over the whole sample has seen its rows.
  const std::vector<Reading>& rows = run.first_pass.size() >= 2 ? run.first_pass : run.readings;
  costs->set_rows(std::max(memory.rows, RowsAfter(rows, sample.lines / sample.share)));
}

}  // namespace

PlanCosts StepCosts(const JobConfig& job, const DataSample& sample, const MeasuredRun& run) {
  const StepMeans means = MeansOf(run.readings);
  PlanCosts costs;
  costs.set_job(job.name());
  costs.set_batch_size(StepExamples(job));
  costs.set_examples(means.examples);
  costs.set_step_s(means.step_s);
  costs.set_wait_s(means.wait_s);
  costs.set_worker_cpu_s(means.worker_cpu_s);
  costs.set_pserver_cpu_s(means.pserver_cpu_s);
  costs.set_pushed_bytes(means.pushed_bytes);
  costs.set_pulled_bytes(means.pulled_bytes);
  costs.set_pipeline_depth(std::max(1u, job.train().pipeline_depth()));
  costs.set_step_spread(SpreadOf(run.step_seconds));
  costs.set_uncertainty(means.uncertainty);
  costs.set_measured_s(run.readings.back().at_s - run.readings.front().at_s);
  costs.set_sampled(!sample.whole);
  SetMemory(sample, run, &costs);
  return costs;
}

void SetFrameCosts(const MeasuredRun& one, const MeasuredRun& many, int pservers,
                   PlanCosts* costs) {
  costs->set_worker_frame_s(kUsualFrame);
  costs->set_pserver_frame_s(kUsualFrame);
  const std::vector<Reading> with_one = Shared(one.readings, many.readings);
  const std::vector<Reading> with_many = Shared(many.readings, one.readings);
  // Two windows say how much they differ.
  if (std::min(with_one.size(), with_many.size()) < 3) return;
  const StepMeans few = MeansOf(with_one), all = MeansOf(with_many);
  const double more = pservers - 1;
  const auto frame = [&](double of_many, double of_one) {
    const double measured = (of_many - of_one) / more;
    // A difference within the error of the two means is no measurement, and the usual cost is
    // nearer.
    const double doubt = std::hypot(all.uncertainty * of_many, few.uncertainty * of_one) / more;
    return measured > doubt ? std::min(measured, kMostFrame) : kUsualFrame;
  };
  costs->set_worker_frame_s(frame(all.worker_cpu_s, few.worker_cpu_s));
  costs->set_pserver_frame_s(frame(all.pserver_cpu_s, few.pserver_cpu_s));
}

void SetGeoCosts(const StepMeans& means, uint32_t k_steps, PlanCosts* costs) {
  GeoCosts* geo = costs->mutable_geo();
  geo->set_k_steps(k_steps);
  geo->set_step_s(means.step_s);
  geo->set_wait_s(means.wait_s);
  geo->set_worker_cpu_s(means.worker_cpu_s);
  geo->set_pserver_cpu_s(means.pserver_cpu_s);
  geo->set_pushed_bytes(means.pushed_bytes);
  geo->set_pulled_bytes(means.pulled_bytes);
}

}  // namespace sluice::plan
