#include "cli/plan/step_costs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

namespace sluice::plan {
namespace {

// Five windows of 10 steps of 100 examples; a step takes 20 ms.
MeasuredRun FiveWindows() {
  MeasuredRun run;
  for (int i = 0; i <= 5; ++i) {
    JobCounters c;
    c.reading.steps = 10 * i;
    c.reading.examples = 1000 * i;
    c.reading.wait_s = 0.05 * i;
    c.reading.worker_cpu_s = 0.1 * i;
    c.reading.pserver_cpu_s = 0.02 * i;
    c.reading.pushed_bytes = 5000 * i;
    c.reading.pulled_bytes = 7000 * i;
    c.reading.rows = c.memory.rows = 50 * i;
    c.memory.row_bytes = 5000 * i;
    c.memory.dense_bytes = 96;
    c.memory.process = 1e6;
    c.epoch = 1;
    run.Add(0.2 * i, c);
  }
  run.step_seconds = {0.02, 0.02, 0.02};
  return run;
}

TEST(StepCostsTest, AreThoseOfOneStep) {
  JobConfig job;
  job.set_name("j");
  job.mutable_train()->set_batch_size(128);
  DataSample sample;
  sample.lines = 10'000;
  sample.whole = false;
  sample.share = 0.5;
  const PlanCosts costs = StepCosts(job, sample, FiveWindows());
  EXPECT_EQ(costs.job(), "j");
  EXPECT_EQ(costs.batch_size(), 128u);
  EXPECT_NEAR(costs.examples(), 100, 1e-9);
  EXPECT_NEAR(costs.step_s(), 0.020, 1e-9);
  EXPECT_NEAR(costs.wait_s(), 0.005, 1e-9);
  EXPECT_NEAR(costs.worker_cpu_s(), 0.010, 1e-9);
  EXPECT_NEAR(costs.pserver_cpu_s(), 0.002, 1e-9);
  EXPECT_NEAR(costs.pushed_bytes(), 500, 1e-9);
  EXPECT_NEAR(costs.pulled_bytes(), 700, 1e-9);
  EXPECT_NEAR(costs.measured_s(), 1, 1e-9);
  EXPECT_TRUE(costs.sampled());
  EXPECT_EQ(costs.dense_memory_bytes(), 96);
  EXPECT_EQ(costs.process_memory_bytes(), 1e6);
  EXPECT_EQ(costs.row_memory_bytes(), 125);  // with an index
  // One row for 20 examples, in a straight line up to the 20,000 of the whole data.
  EXPECT_NEAR(costs.rows(), 1000, 1);
}

TEST(StepCostsTest, AJobWithoutRowsHasNone) {
  MeasuredRun run = FiveWindows();
  run.memory.rows = 0;
  EXPECT_EQ(StepCosts(JobConfig(), DataSample(), run).rows(), 0);
  EXPECT_EQ(StepCosts(JobConfig(), DataSample(), run).row_memory_bytes(), 0);
}

// Windows of 10 steps. A step takes the worker 10 ms of CPU and the pservers 2 ms; `frames` more
// frames cost 100 us at the worker and 60 us at the pservers each. Until step 50, rows cost the
// pservers 1 ms more. Windows take 0.2 s, with `noise` every other one longer.
MeasuredRun WithFrames(int windows, double frames, double noise = 0) {
  MeasuredRun run;
  double at_s = 0;
  for (int i = 0; i <= windows; ++i) {
    JobCounters c;
    const double steps = c.reading.steps = 10 * i;
    c.reading.examples = 100 * steps;
    c.reading.worker_cpu_s = steps * (0.010 + frames * 100e-6);
    c.reading.pserver_cpu_s = steps * (0.002 + frames * 60e-6) + std::min(steps, 50.0) * 0.001;
    run.Add(at_s, c);
    at_s += i % 2 == 0 ? 0.2 : 0.2 * (1 + noise);
  }
  return run;
}

TEST(StepCostsTest, AFrameCostsItsShareOfWhatMorePserversCost) {
  PlanCosts costs;
  SetFrameCosts(WithFrames(5, 0), WithFrames(5, 3), 4, &costs);
  EXPECT_NEAR(costs.worker_frame_s(), 100e-6, 1e-9);
  EXPECT_NEAR(costs.pserver_frame_s(), 60e-6, 1e-9);
}

TEST(StepCostsTest, FramesAreComparedOverTheSameSteps) {
  for (const auto& [one, many] : {std::pair(15, 5), std::pair(5, 15)}) {
    PlanCosts costs;
    SetFrameCosts(WithFrames(one, 0), WithFrames(many, 3), 4, &costs);
    EXPECT_NEAR(costs.pserver_frame_s(), 60e-6, 1e-9) << one;
  }
}

TEST(StepCostsTest, WithoutTwoWindowsOfTheSameStepsAFrameCostsTheUsual) {
  PlanCosts costs;
  SetFrameCosts(WithFrames(15, 0), WithFrames(1, 3), 4, &costs);
  EXPECT_EQ(costs.pserver_frame_s(), 30e-6);
  MeasuredRun later = WithFrames(5, 3);
  for (Reading& reading : later.readings) reading.steps += 40;
  SetFrameCosts(WithFrames(5, 0), later, 4, &costs);
  EXPECT_EQ(costs.pserver_frame_s(), 30e-6);
}

TEST(StepCostsTest, ADifferenceInTheNoiseIsNoMeasurementOfAFrame) {
  PlanCosts costs;
  SetFrameCosts(WithFrames(5, 0, 0.5), WithFrames(5, 3), 4, &costs);
  EXPECT_EQ(costs.worker_frame_s(), 30e-6);
  EXPECT_EQ(costs.pserver_frame_s(), 30e-6);
  SetFrameCosts(WithFrames(5, 0), WithFrames(5, 3000), 4, &costs);
  EXPECT_EQ(costs.worker_frame_s(), 500e-6) << "the most that is believed";
}

TEST(StepCostsTest, GeoHasCostsOfItsOwn) {
  StepMeans means;
  means.step_s = 0.011;
  means.pushed_bytes = 5;
  PlanCosts costs;
  SetGeoCosts(means, 16, &costs);
  EXPECT_EQ(costs.geo().k_steps(), 16u);
  EXPECT_EQ(costs.geo().step_s(), 0.011);
  EXPECT_EQ(costs.geo().pushed_bytes(), 5);
  EXPECT_EQ(costs.step_s(), 0);
}

}  // namespace
}  // namespace sluice::plan
