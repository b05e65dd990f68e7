#include "cli/plan/plan_model.h"

#include <gtest/gtest.h>

#include <cmath>

namespace sluice::plan {
namespace {

constexpr double kMiB = 1 << 20;

// 10 ms of computing on one thread, 1 MiB up and 2 MiB down; pservers cost nothing.
PlanCosts Costs() {
  PlanCosts costs;
  costs.set_examples(100);
  costs.set_step_s(0.010);
  costs.set_worker_threads(1);
  costs.set_pushed_bytes(kMiB);
  costs.set_pulled_bytes(2 * kMiB);
  costs.set_pserver_threads(2);
  costs.set_dense_bytes(kMiB);
  return costs;
}

PlanCosts WithGeo(PlanCosts costs, uint32_t k) {
  GeoCosts* geo = costs.mutable_geo();
  geo->set_k_steps(k);
  geo->set_step_s(costs.step_s());
  geo->set_pushed_bytes(costs.pushed_bytes() / k);
  geo->set_pulled_bytes(costs.pulled_bytes() / k);
  return costs;
}

Network Link(double bytes_per_s, double latency_s = 0) { return {bytes_per_s, latency_s}; }

double Rate(const PlanCosts& costs, uint32_t workers, uint32_t pservers, const Network& network,
            PlanMode mode) {
  return Predict(costs, OnOwnHosts(workers, pservers, 4), network, mode).examples_per_second();
}

TEST(PlanModelTest, OneWorkerTakesTheSumOfItsStages) {
  // 10 ms + 1 MiB / 100 MiB/s + 2 MiB / 100 MiB/s = 40 ms.
  for (const PlanMode mode : {PlanMode::kSync, PlanMode::kAsync}) {
    const PlanPrediction p = Predict(Costs(), OnOwnHosts(1, 1, 4), Link(100 * kMiB), mode);
    EXPECT_NEAR(p.step_s(), 0.040, 1e-9);
    EXPECT_NEAR(p.examples_per_second(), 2500, 1e-3);
    EXPECT_NEAR(p.bytes_per_second(), 3 * kMiB / 0.040, 1);
    EXPECT_EQ(p.binds(), "network");
    EXPECT_NEAR(p.share(), 0.75, 1e-9);
  }
}

TEST(PlanModelTest, RoundTripsCount) {
  EXPECT_NEAR(Rate(Costs(), 1, 1, Link(100 * kMiB, 0.005), PlanMode::kAsync), 100 / 0.045, 1e-3);
  EXPECT_NEAR(Rate(Costs(), 1, 1, Link(100 * kMiB, 0.005), PlanMode::kSync), 100 / 0.050, 1e-3);
}

TEST(PlanModelTest, WithoutALimitOfTheNetworkTheMeasuredStepIsPredicted) {
  PlanCosts costs = Costs();
  costs.set_wait_s(0.003);
  costs.set_worker_cpu_s(0.008);
  costs.set_pserver_cpu_s(0.002);
  EXPECT_NEAR(Rate(costs, 1, 1, Network(), PlanMode::kAsync), 100 / 0.010, 1e-3);
}

TEST(PlanModelTest, ASecondPserverHalvesWhatPserversBind) {
  PlanCosts costs = Costs();
  costs.set_step_s(0.001);
  // Saturated: 2 MiB down per step at 100 MiB/s for each pserver.
  EXPECT_NEAR(Rate(costs, 60, 1, Link(100 * kMiB), PlanMode::kAsync), 100 * 50, 100);
  EXPECT_NEAR(Rate(costs, 60, 2, Link(100 * kMiB), PlanMode::kAsync), 100 * 100, 200);
}

TEST(PlanModelTest, AWorkersOwnLinkBindsHoweverManyPserversThereAre) {
  // 10 ms + 3 MiB / 100 MiB/s through the worker's link. In async, 0.8 (63/64) of the 1 MiB that is
  // pushed leaves while values arrive.
  EXPECT_NEAR(Rate(Costs(), 1, 64, Link(100 * kMiB), PlanMode::kSync), 2500, 1e-3);
  EXPECT_NEAR(Rate(Costs(), 1, 64, Link(100 * kMiB), PlanMode::kAsync),
              100 / (0.040 - 0.8 * 63 / 64 * 0.010), 1e-3);
}

TEST(PlanModelTest, SyncTransfersOfAllWorkersTakeTheSumOfTheirBytes) {
  // 10 ms + 4 x 3 MiB / 100 MiB/s, less what the transfers of two steps overlap.
  EXPECT_NEAR(Rate(Costs(), 4, 1, Link(100 * kMiB), PlanMode::kSync),
              4 * 100 / (0.010 + 0.120 * SyncSharing(4, 1)), 1e-3);
}

TEST(PlanModelTest, SyncSharingIsThatOfPlainTcp) {
  // As bench/link_sharing.py has measured it.
  const struct {
    double pservers, workers, measured;
  } steps[] = {{1, 1, 0.98}, {1, 2, 0.91}, {1, 3, 0.89}, {1, 4, 0.86}, {1, 8, 0.84},
               {2, 1, 0.99}, {2, 2, 1.08}, {2, 4, 0.96}, {2, 8, 0.91}, {4, 1, 1.00},
               {4, 2, 1.04}, {4, 4, 1.21}, {4, 8, 1.03}, {8, 2, 1.04}};
  for (const auto& step : steps) {
    EXPECT_NEAR(SyncSharing(step.workers, step.pservers) / step.measured, 1, 0.06)
        << step.pservers << " pservers, " << step.workers << " workers";
  }
}

TEST(PlanModelTest, SyncWaitsForTheSlowestWorker) {
  PlanCosts costs = Costs();
  costs.set_step_spread(0.2);
  const double four = Rate(costs, 4, 1, Network(), PlanMode::kSync);
  // E[max] of 4: z = Phi^-1(3.625 / 4.25) = 1.0491.
  EXPECT_NEAR(four, 4 * 100 / (0.010 * std::exp(0.2 * 1.0491 - 0.02)), 1);
  EXPECT_NEAR(Rate(costs, 4, 1, Network(), PlanMode::kAsync), 4 * 100 / 0.010, 1e-3);
}

TEST(PlanModelTest, SlowestOfOneIsItself) {
  EXPECT_EQ(SlowestOf(1, 0.5), 1);
  EXPECT_EQ(SlowestOf(1000, 0), 1);
  EXPECT_GT(SlowestOf(1000, 0.1), SlowestOf(10, 0.1));
}

TEST(PlanModelTest, CollectiveMovesTheDenseBytesBetweenTheWorkers) {
  PlanCosts costs = Costs();
  costs.set_pulled_bytes(kMiB);  // only dense tables
  // 10 ms + 1.1 * 2 (3/4) 1 MiB / 100 MiB/s = 26.5 ms, without any pserver.
  EXPECT_NEAR(Rate(costs, 4, 0, Link(100 * kMiB), PlanMode::kCollective), 4 * 100 / 0.0265, 1e-3);
  EXPECT_NEAR(Rate(costs, 1, 0, Link(100 * kMiB), PlanMode::kCollective), 100 / 0.010, 1e-3);
}

TEST(PlanModelTest, UnequalHostsExchangeAsManyBytesAsEqualOnes) {
  PlanCosts costs = Costs();
  costs.set_pulled_bytes(kMiB);  // only dense tables
  std::vector<PlanHost> hosts(2);
  hosts[0].set_cores(16);
  hosts[1].set_cores(4);
  const Placement placement = OnHosts(20, 0, &hosts);
  EXPECT_EQ(hosts[0].workers(), 16);
  // 10 ms + 2 (1/2) 1 MiB / 100 MiB/s between two hosts.
  EXPECT_NEAR(Predict(costs, placement, Link(100 * kMiB), PlanMode::kCollective).step_s(), 0.020,
              1e-9);
}

TEST(PlanModelTest, WorkersOfOneHostReduceWithoutItsLink) {
  StepLoad load;
  load.reduced_bytes = kMiB;
  const Network network = Link(100 * kMiB);
  // 2 (n-1)/n of the bytes for n hosts, 1.1 times as long if they take turns.
  EXPECT_NEAR(ReduceSeconds(load, 8, network), 1.1 * 0.0175, 1e-9);
  EXPECT_NEAR(ReduceSeconds(load, 2, network), 0.0100, 1e-9);
  EXPECT_EQ(ReduceSeconds(load, 1, network), 0);
  EXPECT_EQ(ReduceSeconds(StepLoad(), 8, network), 0);
}

TEST(PlanModelTest, SmallBatchesGoWholeToEveryOtherWorker) {
  StepLoad load;
  load.reduced_bytes = kMiB;
  load.whole_bytes = kMiB / 4;
  const Network network = Link(100 * kMiB);
  EXPECT_EQ(ExchangedBytes(load, 1), 0);
  EXPECT_NEAR(ExchangedBytes(load, 2), kMiB, 1e-6);
  EXPECT_NEAR(ExchangedBytes(load, 9), (2 * 8 / 9.0 * 0.75 + 8 * 0.25) * kMiB, 1e-6);
  EXPECT_NEAR(ReduceSeconds(load, 9, network), 1.1 * 0.01 * (2 * 8 / 9.0 * 0.75 + 8 * 0.25), 1e-9);
  // The costs may come from an earlier plan whose job had fewer dense tables.
  PlanCosts costs = Costs();
  costs.set_exchange_whole_bytes(10 * costs.dense_bytes());
  const StepLoad of_costs = LoadOf(costs, PlanMode::kCollective, 9, 0, 1);
  EXPECT_EQ(of_costs.whole_bytes, of_costs.reduced_bytes);
}

TEST(PlanModelTest, OnlyHostsExchangeSmallBatchesWhole) {
  PlanCosts costs = Costs();
  costs.set_pulled_bytes(kMiB);  // only dense tables
  costs.set_exchange_whole_bytes(kMiB);
  const auto bytes_of_a_step = [&](int of_hosts) {
    std::vector<PlanHost> hosts(of_hosts);
    for (PlanHost& host : hosts) host.set_cores(8);
    const Placement placement = OnHosts(16, 0, &hosts);
    const PlanPrediction p = Predict(costs, placement, Link(100 * kMiB), PlanMode::kCollective);
    return p.bytes_per_second() * p.step_s() / kMiB;
  };
  EXPECT_NEAR(bytes_of_a_step(16), 16 * 15, 1e-6);
  EXPECT_NEAR(bytes_of_a_step(4), 4 * 3, 1e-6);
  EXPECT_NEAR(bytes_of_a_step(1), 16 * 2 * 15 / 16.0, 1e-6);  // in its memory, part by part
}

TEST(PlanModelTest, EveryWorkerExchangesMessagesWithEachOther) {
  StepLoad load;
  load.reduced_bytes = kMiB;
  load.batches = 3;
  load.messages = 9;
  load.message_s = 20e-6;
  const Network network = Link(100 * kMiB, 0.001);
  EXPECT_NEAR(MessageSeconds(load, 2, 2, network), 9 * (20e-6 + 0.0005), 1e-12);
  EXPECT_NEAR(MessageSeconds(load, 1000, 1000, network), 9 * (999 * 20e-6 + 0.0005), 1e-12);
  // The leaders of two hosts exchange headers before each batch.
  EXPECT_NEAR(MessageSeconds(load, 8, 2, network), 12 * (20e-6 + 0.0005), 1e-12);
  EXPECT_EQ(MessageSeconds(load, 8, 1, network), 0);
  EXPECT_EQ(MessageSeconds(load, 1, 1, network), 0);
  EXPECT_EQ(MessageSeconds(StepLoad(), 8, 8, network), 0);
}

TEST(PlanModelTest, ManyWorkersSpendTheirTimeOnMessages) {
  PlanCosts costs = Costs();
  costs.set_pulled_bytes(kMiB);  // only dense tables
  costs.set_worker_frame_s(20e-6);
  costs.set_exchange_batches(2);
  costs.set_exchange_messages(8);
  const auto step = [&](uint32_t workers) {
    return Predict(costs, OnOwnHosts(workers, 0, 4), Network(), PlanMode::kCollective);
  };
  EXPECT_NEAR(step(1).step_s(), 0.010, 1e-9);
  for (const uint32_t workers : {2, 5, 101})
    EXPECT_NEAR(step(workers).step_s(), 0.010 + 8 * 20e-6 * (workers - 1), 1e-9);
  EXPECT_EQ(step(101).binds(), "worker messages");
}

// The worker makes the update of the dense tables that the pserver made.
TEST(PlanModelTest, AloneOnAHostACollectiveWorkerIsAsFastAsASyncOne) {
  PlanCosts costs = Costs();
  costs.set_wait_s(0.003);
  costs.set_worker_cpu_s(0.008);
  costs.set_worker_frame_s(20e-6);
  costs.set_pserver_frame_s(30e-6);
  costs.set_exchange_batches(2);
  costs.set_exchange_messages(8);
  for (const double rows : {0, 1000}) {
    costs.set_rows(rows);
    for (const double pserver_cpu : {0.002, 0.005}) {  // it waited longer, and shorter
      costs.set_pserver_cpu_s(pserver_cpu);
      std::vector<PlanHost> hosts(1);
      hosts[0].set_cores(4);
      const Placement one = OnHosts(1, 1, &hosts);
      const double sync = Predict(costs, one, Network(), PlanMode::kSync).step_s();
      EXPECT_NEAR(Predict(costs, one, Network(), PlanMode::kCollective).step_s(), sync, 30e-6);
    }
  }
}

TEST(PlanModelTest, EveryCollectiveWorkerUpdatesTheDenseTables) {
  PlanCosts costs = Costs();  // a third of the bytes are pushed, and all of these are dense
  costs.set_rows(1000);
  costs.set_wait_s(0.003);
  costs.set_worker_cpu_s(0.007);
  costs.set_pserver_cpu_s(0.003);
  const StepLoad sync = LoadOf(costs, PlanMode::kSync, 8, 1, 1);
  const StepLoad collective = LoadOf(costs, PlanMode::kCollective, 8, 1, 1);
  EXPECT_NEAR(collective.pserver_cpu_s, 0.001, 1e-12);
  EXPECT_NEAR(collective.worker_cpu_s - sync.worker_cpu_s, 0.002, 1e-12);
  EXPECT_NEAR(collective.compute_s - sync.compute_s, 0.002, 1e-12);
}

// The headers of frames weigh more than the values of a tiny model.
TEST(PlanModelTest, ATinyCollectiveModelNeedsNoPservers) {
  PlanCosts costs = Costs();
  costs.set_dense_bytes(100);
  costs.set_pushed_bytes(250);
  costs.set_pulled_bytes(150);
  EXPECT_NEAR(Rate(costs, 4, 0, Link(1e4), PlanMode::kCollective), 4 * 100 / 0.0265, 1e-3);
  // One that closes the steps takes none of the bytes.
  EXPECT_NEAR(Rate(costs, 4, 1, Link(1e4), PlanMode::kCollective), 4 * 100 / 0.0265, 1e-3);
}

TEST(PlanModelTest, DenseTablesThatStayOnPserversNeedThemInCollectiveModeToo) {
  PlanCosts costs = Costs();
  costs.set_pulled_bytes(kMiB);  // only dense tables
  costs.set_kept_dense_bytes(kMiB / 4);
  EXPECT_TRUE(PserversKeepTables(costs, PlanMode::kCollective));
  EXPECT_EQ(Rate(costs, 4, 0, Link(100 * kMiB), PlanMode::kCollective), 0);
  // 10 ms + 1.1 * 2 (3/4) 0.75 MiB / 100 MiB/s between the workers + 4 x 2 x 0.25 MiB / 100 MiB/s
  // through the pserver's link, as sync steps share it.
  const double step = 0.010 + 1.1 * 0.01125 + 0.020 * SyncSharing(4, 1);
  const PlanPrediction p =
      Predict(costs, OnOwnHosts(4, 1, 4), Link(100 * kMiB), PlanMode::kCollective);
  EXPECT_NEAR(p.examples_per_second(), 4 * 100 / step, 1e-3);
  // 2 x 0.25 MiB of each worker through the pserver, and 2 (3/4) 0.75 MiB between the workers.
  EXPECT_NEAR(p.bytes_per_second(), 4 * 1.625 * kMiB / step, 1);
}

TEST(PlanModelTest, RoundTripsToPserversCountOnlyWhereTheyAre) {
  PlanCosts costs = Costs();
  costs.set_pulled_bytes(kMiB);
  costs.set_exchange_messages(4);
  // 10 ms + 1.1 * 15 ms + 4 messages of half a round trip.
  EXPECT_NEAR(Rate(costs, 4, 0, Link(100 * kMiB, 0.001), PlanMode::kCollective), 4 * 100 / 0.0285,
              1e-3);
  EXPECT_NEAR(Rate(costs, 4, 1, Link(100 * kMiB, 0.001), PlanMode::kCollective), 4 * 100 / 0.0305,
              1e-3);
}

TEST(PlanModelTest, SparseTablesNeedPserversInEveryMode) {
  PlanCosts costs = WithGeo(Costs(), 8);
  costs.set_rows(1000);
  for (const PlanMode mode :
       {PlanMode::kSync, PlanMode::kAsync, PlanMode::kGeo, PlanMode::kCollective})
    EXPECT_EQ(Rate(costs, 2, 0, Link(kMiB), mode), 0);
}

TEST(PlanModelTest, GeoHidesAnExchangeBehindAnEighthOfItsSteps) {
  const PlanCosts costs = WithGeo(Costs(), 16);
  // 16 steps of 10 ms; the exchange of 30 ms is hidden for 2 steps.
  EXPECT_NEAR(Rate(costs, 1, 1, Link(100 * kMiB), PlanMode::kGeo), 16 * 100 / 0.170, 1e-3);
  EXPECT_NEAR(Rate(costs, 1, 1, Network(), PlanMode::kGeo), 100 / 0.010, 1e-3);
}

TEST(PlanModelTest, GeoThatWasNotMeasuredIsNotPredicted) {
  EXPECT_EQ(Rate(Costs(), 1, 1, Network(), PlanMode::kGeo), 0);
}

TEST(PlanModelTest, ADeeperPipelineHidesTheNetwork) {
  PlanCosts costs = Costs();
  costs.set_step_s(0.030);
  EXPECT_NEAR(Rate(costs, 1, 1, Link(100 * kMiB), PlanMode::kAsync), 100 / 0.060, 1e-3);
  costs.set_pipeline_depth(2);
  EXPECT_NEAR(Rate(costs, 1, 1, Link(100 * kMiB), PlanMode::kAsync), 100 / 0.030, 1e-3);
}

TEST(PlanModelTest, TheCoresOfOneHostAreShared) {
  PlanCosts costs = Costs();
  costs.set_worker_cpu_s(0.009);
  costs.set_pserver_cpu_s(0.001);
  costs.set_wait_s(0.001);
  costs.set_fixed_threads(true);
  std::vector<PlanHost> hosts(1);
  hosts[0].set_cores(4);
  // 4 cores give at most 400 CPU seconds a second x 1 / 10 ms.
  const PlanPrediction p = Predict(costs, OnHosts(40, 1, &hosts), Network(), PlanMode::kAsync);
  EXPECT_GT(p.examples_per_second(), 0.95 * 100 * 4 / 0.010);
  EXPECT_LE(p.examples_per_second(), 100 * 4 / 0.010);
  EXPECT_EQ(p.binds(), "cores of the host");
}

TEST(PlanModelTest, AWorkerOnItsOwnHostWaitsForNobodysCores) {
  PlanCosts costs = Costs();
  costs.set_worker_cpu_s(0.010);
  EXPECT_NEAR(Rate(costs, 50, 50, Network(), PlanMode::kAsync), 50 * 100 / 0.010, 1e-3);
}

TEST(PlanModelTest, FewerThreadsComputeLonger) {
  PlanCosts costs = Costs();  // 10 ms on 4 threads, 34 ms of CPU: 2 ms serial, 32 ms parallel
  costs.set_worker_threads(4);
  costs.set_worker_cpu_s(0.034);
  EXPECT_NEAR(LoadOf(costs, PlanMode::kAsync, 1, 1, 4).compute_s, 0.010, 1e-12);
  EXPECT_NEAR(LoadOf(costs, PlanMode::kAsync, 1, 1, 2).compute_s, 0.018, 1e-12);
  EXPECT_NEAR(LoadOf(costs, PlanMode::kAsync, 1, 1, 1).compute_s, 0.034, 1e-12);
}

TEST(PlanModelTest, AFrameForEachPserverCosts) {
  PlanCosts costs = Costs();
  costs.set_worker_frame_s(20e-6);
  costs.set_pserver_frame_s(30e-6);
  costs.set_pserver_cpu_s(1030e-6);
  const StepLoad load = LoadOf(costs, PlanMode::kAsync, 1, 101, 1);
  EXPECT_NEAR(load.compute_s, 0.010 + 100 * 20e-6, 1e-12);
  EXPECT_NEAR(load.pserver_cpu_s, 1000e-6 / 101 + 30e-6, 1e-12);
}

TEST(PlanModelTest, AHostsOwnPserversNeedNoLink) {
  std::vector<PlanHost> hosts(2);
  hosts[0].set_cores(4), hosts[1].set_cores(4);
  // Half of the bytes stay on the host. Link: (0.5 + 1) MiB in and (0.5 + 1) MiB out for each
  // worker.
  const double both = Predict(Costs(), OnHosts(2, 2, &hosts), Link(100 * kMiB), PlanMode::kSync)
                          .examples_per_second();
  EXPECT_GT(both, Rate(Costs(), 2, 2, Link(100 * kMiB), PlanMode::kSync));
  EXPECT_EQ(hosts[0].workers(), 1u);
  EXPECT_EQ(hosts[1].pservers(), 1u);
}

TEST(PlanModelTest, WorkersGoWhereCoresAreFree) {
  std::vector<PlanHost> hosts(2);
  hosts[0].set_cores(2), hosts[1].set_cores(8);
  OnHosts(9, 1, &hosts);
  EXPECT_EQ(hosts[0].pservers(), 1u);
  EXPECT_EQ(hosts[0].workers(), 1u);
  EXPECT_EQ(hosts[1].workers(), 8u);
}

// More bandwidth, more pservers and less computing never make a job slower.
TEST(PlanModelTest, IsMonotonic) {
  PlanCosts costs = WithGeo(Costs(), 16);
  costs.set_pserver_cpu_s(0.002);
  costs.set_wait_s(0.001);
  for (const PlanMode mode :
       {PlanMode::kSync, PlanMode::kAsync, PlanMode::kGeo, PlanMode::kCollective}) {
    for (const uint32_t workers : {1, 2, 7, 100}) {
      double last = 0;
      for (const double mib : {1, 10, 100, 1000, 100000}) {
        const double rate = Rate(costs, workers, 2, Link(mib * kMiB), mode);
        EXPECT_GE(rate, last * (1 - 1e-6));
        last = rate;
      }
      last = 0;
      for (const uint32_t pservers : {1, 2, 4, 16}) {
        const double rate = Rate(costs, workers, pservers, Link(50 * kMiB), mode);
        EXPECT_GE(rate, last * (1 - 1e-6));
        last = rate;
      }
      PlanCosts slower = costs;
      slower.set_step_s(0.020);
      slower.mutable_geo()->set_step_s(0.020);
      EXPECT_LE(Rate(slower, workers, 2, Link(50 * kMiB), mode),
                Rate(costs, workers, 2, Link(50 * kMiB), mode) * (1 + 1e-6));
    }
  }
}

TEST(PlanModelTest, ComputingThatTakesNoTimeLeavesTheNetwork) {
  PlanCosts costs = Costs();
  costs.set_step_s(0);
  const PlanPrediction p = Predict(costs, OnOwnHosts(1, 1, 4), Link(100 * kMiB), PlanMode::kAsync);
  EXPECT_NEAR(p.step_s(), 0.030, 1e-9);
  EXPECT_NEAR(p.share(), 1, 1e-9);
}

TEST(PlanModelTest, MemoryOfAPserver) {
  PlanCosts costs;
  costs.set_process_memory_bytes(50);
  costs.set_dense_memory_bytes(100);
  costs.set_rows(10);
  costs.set_row_memory_bytes(20);
  EXPECT_EQ(PserverMemory(costs, PlanMode::kAsync, 1), 350);
  EXPECT_EQ(PserverMemory(costs, PlanMode::kAsync, 3), 150);
  EXPECT_EQ(PserverMemory(costs, PlanMode::kAsync, 0), 0);
  EXPECT_EQ(PserverMemory(costs, PlanMode::kCollective, 1), 250) << "without the dense tables";
  costs.set_kept_dense_memory_bytes(40);
  EXPECT_EQ(PserverMemory(costs, PlanMode::kCollective, 1), 290) << "with those that stay";
}

TEST(PlanModelTest, TheClosedFormulaIsBestAtItsShare) {
  // V n / (B T_0) = 4: one third are workers.
  EXPECT_NEAR(FormulaShare(2, 8, 1, 1), 1.0 / 3, 1e-12);
  EXPECT_NEAR(FormulaStep(2, 8, 1, 1, 1.0 / 3), 2 * 3 + 8 * 0.5, 1e-12);
  const double best = FormulaStep(0.1, 1e6, 1e8, 12, FormulaShare(0.1, 1e6, 1e8, 12));
  for (double share = 0.05; share < 1; share += 0.05)
    EXPECT_GE(FormulaStep(0.1, 1e6, 1e8, 12, share), best);
}

}  // namespace
}  // namespace sluice::plan
