#include "cli/plan/scaling_simulator.h"

#include <gtest/gtest.h>

namespace sluice::plan {
namespace {

constexpr double kSimulatedMiB = 1 << 20;

PlanCosts SimulatedCosts() {
  PlanCosts costs;
  costs.set_examples(100);
  costs.set_step_s(0.010);
  costs.set_wait_s(0.001);
  costs.set_worker_threads(1);
  costs.set_pserver_cpu_s(0.001);
  costs.set_pserver_threads(2);
  costs.set_pushed_bytes(kSimulatedMiB);
  costs.set_pulled_bytes(2 * kSimulatedMiB);
  costs.set_dense_bytes(kSimulatedMiB / 2);
  costs.set_worker_frame_s(20e-6);
  costs.set_exchange_batches(2);
  costs.set_exchange_messages(5);
  GeoCosts* geo = costs.mutable_geo();
  geo->set_k_steps(16);
  geo->set_step_s(0.010);
  geo->set_pserver_cpu_s(0.0001);
  geo->set_pushed_bytes(kSimulatedMiB / 8);
  geo->set_pulled_bytes(kSimulatedMiB / 8);
  return costs;
}

Simulation PointAt(double bytes_per_s, double latency_s = 0) {
  Simulation simulation;
  simulation.network = {bytes_per_s, latency_s};
  simulation.cores = 4;
  return simulation;
}

double Formula(const PlanCosts& costs, PlanMode mode, uint32_t workers, uint32_t pservers,
               const Simulation& s) {
  return Predict(costs, OnOwnHosts(workers, pservers, s.cores), s.network, mode)
      .examples_per_second();
}

TEST(ScalingSimulatorTest, OneWorkerIsAsTheFormulasSay) {
  for (const PlanMode mode :
       {PlanMode::kSync, PlanMode::kAsync, PlanMode::kGeo, PlanMode::kCollective}) {
    for (const double mib : {20, 1000}) {
      const Simulation s = PointAt(mib * kSimulatedMiB, 0.002);
      const double formula = Formula(SimulatedCosts(), mode, 1, 3, s);
      EXPECT_NEAR(Simulate(SimulatedCosts(), mode, 1, 3, s), formula, 1e-3 * formula)
          << static_cast<int>(mode);
    }
  }
}

TEST(ScalingSimulatorTest, SyncWithoutSpreadIsAsTheFormulaSays) {
  for (const PlanMode mode : {PlanMode::kSync, PlanMode::kCollective}) {
    for (const uint32_t workers : {2, 50, 1000}) {
      for (const uint32_t pservers : {1, 10, 100}) {
        const Simulation s = PointAt(100 * kSimulatedMiB, 0.001);
        const double formula = Formula(SimulatedCosts(), mode, workers, pservers, s);
        EXPECT_NEAR(Simulate(SimulatedCosts(), mode, workers, pservers, s), formula,
                    1e-6 * formula);
      }
    }
  }
}

// Every worker exchanges messages with every other one, so pservers win in the end.
TEST(ScalingSimulatorTest, MessagesMakeManyCollectiveWorkersSlowerThanSyncOnes) {
  const auto collective_of_sync = [](uint32_t workers) {
    const ScalingPoint p =
        SimulateAll(SimulatedCosts(), workers, 100, PointAt(1000 * kSimulatedMiB, 0.0001));
    return p.collective() / p.sync();
  };
  EXPECT_GT(collective_of_sync(20), 0.9);
  EXPECT_LT(collective_of_sync(2000), 0.5);
}

TEST(ScalingSimulatorTest, SaturatedPserversGiveWhatTheirLinksCarry) {
  // 2 MiB down per step through 4 links of 100 MiB/s.
  const double rate =
      Simulate(SimulatedCosts(), PlanMode::kAsync, 500, 4, PointAt(100 * kSimulatedMiB));
  EXPECT_NEAR(rate, 100 * 4 * 100 / 2, 200);
  EXPECT_NEAR(Formula(SimulatedCosts(), PlanMode::kAsync, 500, 4, PointAt(100 * kSimulatedMiB)),
              rate, 0.01 * rate);
}

TEST(ScalingSimulatorTest, QueuesAreNearTheFormulaWithSpread) {
  PlanCosts costs = SimulatedCosts();
  costs.set_step_spread(0.3);
  for (const PlanMode mode : {PlanMode::kSync, PlanMode::kAsync, PlanMode::kGeo}) {
    for (const uint32_t workers : {2, 8, 32}) {
      const Simulation s = PointAt(200 * kSimulatedMiB);
      const double simulated = Simulate(costs, mode, workers, 2, s);
      EXPECT_NEAR(Formula(costs, mode, workers, 2, s), simulated, 0.2 * simulated)
          << static_cast<int>(mode) << " " << workers;
    }
  }
}

TEST(ScalingSimulatorTest, TheSameSeedGivesTheSameRate) {
  PlanCosts costs = SimulatedCosts();
  costs.set_step_spread(0.3);
  Simulation s = PointAt(200 * kSimulatedMiB);
  const double rate = Simulate(costs, PlanMode::kAsync, 20, 2, s);
  EXPECT_EQ(Simulate(costs, PlanMode::kAsync, 20, 2, s), rate);
  s.seed = 2;
  EXPECT_NE(Simulate(costs, PlanMode::kAsync, 20, 2, s), rate);
}

TEST(ScalingSimulatorTest, FindsWhereSyncFallsBelowHalf) {
  const Simulation s = PointAt(1000 * kSimulatedMiB);
  const uint32_t at = WorkersAtHalfOfIdeal(SimulatedCosts(), PlanMode::kSync, 10, 10000, s);
  ASSERT_GT(at, 1u);
  const auto share = [&](uint32_t workers) {
    return Simulate(SimulatedCosts(), PlanMode::kSync, workers, 10, s) /
           IdealRate(SimulatedCosts(), workers, 4);
  };
  EXPECT_LT(share(at), 0.5);
  EXPECT_GE(share(at - 1), 0.5);
  EXPECT_EQ(WorkersAtHalfOfIdeal(SimulatedCosts(), PlanMode::kSync, 10, at - 1, s), 0u);
  EXPECT_GT(WorkersAtHalfOfIdeal(SimulatedCosts(), PlanMode::kSync, 20, 10000, s), at);
}

TEST(ScalingSimulatorTest, OnlyCollectiveJobsWithoutSparseTablesHaveNoPservers) {
  PlanCosts costs = SimulatedCosts();
  const Simulation s = PointAt(100 * kSimulatedMiB, 0.001);
  const double formula = Formula(costs, PlanMode::kCollective, 16, 0, s);
  ASSERT_GT(formula, 0);
  EXPECT_NEAR(Simulate(costs, PlanMode::kCollective, 16, 0, s), formula, 1e-6 * formula);
  EXPECT_EQ(Simulate(costs, PlanMode::kSync, 16, 0, s), 0);
  costs.set_kept_dense_bytes(1);
  EXPECT_EQ(Simulate(costs, PlanMode::kCollective, 16, 0, s), 0);
  costs.clear_kept_dense_bytes();
  costs.set_rows(1000);
  EXPECT_EQ(Simulate(costs, PlanMode::kCollective, 16, 0, s), 0);
}

TEST(ScalingSimulatorTest, ModesThatWereNotMeasuredAreZero) {
  PlanCosts costs = SimulatedCosts();
  costs.clear_geo();
  const ScalingPoint point = SimulateAll(costs, 4, 1, PointAt(100 * kSimulatedMiB));
  EXPECT_EQ(point.geo(), 0);
  EXPECT_GT(point.sync(), 0);
  EXPECT_GT(point.ideal(), point.async());
}

}  // namespace
}  // namespace sluice::plan
