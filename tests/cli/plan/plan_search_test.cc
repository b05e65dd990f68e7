#include "cli/plan/plan_search.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/config/job_config.h"

namespace sluice::plan {
namespace {

constexpr double kSearchMiB = 1 << 20;

PlanCosts SearchCosts() {
  PlanCosts costs;
  costs.set_examples(100);
  costs.set_step_s(0.010);
  costs.set_worker_threads(1);
  costs.set_worker_cpu_s(0.010);
  costs.set_fixed_threads(true);
  costs.set_pushed_bytes(kSearchMiB);
  costs.set_pulled_bytes(kSearchMiB);
  costs.set_pserver_cpu_s(0.001);
  costs.set_pserver_threads(2);
  return costs;
}

std::vector<PlanHost> Hosts(std::vector<std::pair<std::string, uint32_t>> named) {
  std::vector<PlanHost> hosts;
  for (const auto& [name, cores] : named) {
    hosts.emplace_back();
    hosts.back().set_name(name);
    hosts.back().set_cores(cores);
  }
  return hosts;
}

TEST(PlanSearchTest, TheBestSplitIsTheFastestOfItsProcesses) {
  PlanQuestion question;
  question.network.bytes_per_s = 100 * kSearchMiB;
  question.cores = 4;
  const Plan plan = AnswerPlan(SearchCosts(), question);
  ASSERT_GT(plan.rows_size(), 8);
  for (const PlanRow& row : plan.rows()) {
    EXPECT_EQ(row.workers() + row.pservers(), row.processes());
    for (uint32_t pservers = 1; pservers < row.processes() && row.processes() < 20; ++pservers) {
      const double other =
          Predict(SearchCosts(), OnOwnHosts(row.processes() - pservers, pservers, 4),
                  question.network, PlanMode::kAsync)
              .examples_per_second();
      EXPECT_GE(row.async().examples_per_second(), other / 1.002);
    }
  }
  EXPECT_TRUE(plan.own_hosts());
  EXPECT_DOUBLE_EQ(plan.bits_per_second(), LinkBits(100 * kSearchMiB));
}

TEST(PlanSearchTest, RowsHaveTheClosedFormula) {
  PlanQuestion question;
  question.network.bytes_per_s = 200 * kSearchMiB;  // V / (B T_0) = 2 MiB / 2 MiB = 1
  question.workers = {3};
  question.pservers = {1};
  const Plan plan = AnswerPlan(SearchCosts(), question);
  ASSERT_EQ(plan.rows_size(), 1);
  EXPECT_NEAR(plan.rows(0).formula_share(), 1.0 / 3, 1e-12);
  EXPECT_NEAR(plan.rows(0).formula_step_s(), 0.010 / (4.0 / 3) + 0.010 * 0.5, 1e-12);
}

TEST(PlanSearchTest, NamedNumbersGiveARowForEachPair) {
  PlanQuestion question;
  question.workers = {1, 2, 4};
  question.pservers = {1, 2};
  question.network.bytes_per_s = 10 * kSearchMiB;
  const Plan plan = AnswerPlan(SearchCosts(), question);
  ASSERT_EQ(plan.rows_size(), 6);
  EXPECT_EQ(plan.rows(5).workers(), 4u);
  EXPECT_EQ(plan.rows(5).pservers(), 2u);
}

// The rate nears what the pserver's link carries.
TEST(PlanSearchTest, TheFewestProcessesWinThatAreNearlyAsFast) {
  PlanQuestion question;
  question.network.bytes_per_s = 100 * kSearchMiB;
  question.workers = {60, 40, 20, 5};
  question.pservers = {1};
  const Plan plan = AnswerPlan(SearchCosts(), question);
  double highest = 0;
  for (const PlanRow& row : plan.rows())
    highest = std::max(highest, row.async().examples_per_second());
  const PlanRow& best = plan.rows(plan.best());
  EXPECT_GE(best.async().examples_per_second(), 0.95 * highest);
  EXPECT_LT(best.async().examples_per_second(), highest);
  for (const PlanRow& row : plan.rows()) {
    if (row.processes() < best.processes()) {
      EXPECT_LT(row.async().examples_per_second(), 0.95 * highest);
    }
  }
}

TEST(PlanSearchTest, HostsHaveTheProcessesOfTheBestRow) {
  PlanQuestion question;
  question.hosts = Hosts({{"a", 4}});
  const Plan plan = AnswerPlan(SearchCosts(), question);
  ASSERT_EQ(plan.hosts_size(), 1);
  EXPECT_EQ(plan.hosts(0).workers(), plan.rows(plan.best()).workers());
  EXPECT_EQ(plan.hosts(0).pservers(), plan.rows(plan.best()).pservers());
}

TEST(PlanSearchTest, PserversThatComputeMuchAreMore) {
  PlanCosts costs = SearchCosts();
  EXPECT_EQ(PserversFor(costs, PlanMode::kAsync, 1, 64), 1u);
  costs.set_pserver_cpu_s(0.010);  // a pserver has 2 threads
  EXPECT_GE(PserversFor(costs, PlanMode::kAsync, 16, 64), 4u);
}

TEST(PlanSearchTest, TheClusterOfThePlanIsValid) {
  PlanQuestion question;
  question.hosts = Hosts({{"127.0.0.1", 4}});
  question.workers = {3};
  question.pservers = {2};
  const auto local = ClusterOf(AnswerPlan(SearchCosts(), question), 7100);
  ASSERT_TRUE(local.ok());
  EXPECT_TRUE(ValidateClusterConfig(WithDefaults(*local)).ok());
  EXPECT_EQ(local->worker_num(), 3u);
  EXPECT_EQ(local->pservers_size(), 2);

  question.hosts = Hosts({{"a", 8}, {"b", 8}});
  auto two = ClusterOf(AnswerPlan(SearchCosts(), question), 7100);
  ASSERT_TRUE(two.ok());
  EXPECT_EQ(two->scheduler(), "a:7100");
  EXPECT_EQ(two->pservers(1), "b:7200");
  EXPECT_EQ(two->worker_hosts_size(), 3);
  two->mutable_security()->set_insecure(true);
  EXPECT_TRUE(ValidateClusterConfig(WithDefaults(*two)).ok());
}

// Costs of a collective job: all bytes are those of dense tables.
PlanQuestion CollectiveQuestion() {
  PlanQuestion question;
  question.mode = PlanMode::kCollective;
  question.network.bytes_per_s = 100 * kSearchMiB;
  return question;
}

PlanCosts DenseCosts() {
  PlanCosts costs = SearchCosts();
  costs.set_dense_bytes(kSearchMiB);
  return costs;
}

TEST(PlanSearchTest, ACollectiveJobWithoutSparseTablesGetsNoPservers) {
  const Plan plan = AnswerPlan(DenseCosts(), CollectiveQuestion());
  EXPECT_EQ(plan.mode(), "collective");
  ASSERT_GT(plan.rows_size(), 8);
  EXPECT_EQ(plan.rows(0).processes(), 1u);
  for (const PlanRow& row : plan.rows()) {
    EXPECT_EQ(row.pservers(), 0u);
    EXPECT_EQ(row.workers(), row.processes());
    EXPECT_GT(row.collective().examples_per_second(), 0);
    EXPECT_EQ(row.sync().examples_per_second(), 0);
    EXPECT_EQ(row.formula_share(), 0);
  }
  EXPECT_EQ(PserversFor(DenseCosts(), PlanMode::kCollective, 8, 16), 0u);
  // An idle pserver would leave the workers more of two cores, as one worker less would.
  PlanQuestion one_host = CollectiveQuestion();
  one_host.hosts = Hosts({{"127.0.0.1", 2}});
  const Plan on_one_host = AnswerPlan(DenseCosts(), one_host);
  for (const PlanRow& row : on_one_host.rows()) EXPECT_EQ(row.pservers(), 0u) << row.processes();
}

TEST(PlanSearchTest, ACollectiveJobWithSparseTablesGetsPservers) {
  PlanCosts costs = DenseCosts();
  costs.set_dense_bytes(kSearchMiB / 2);
  costs.set_rows(1000);
  const Plan plan = AnswerPlan(costs, CollectiveQuestion());
  for (const PlanRow& row : plan.rows()) EXPECT_GE(row.pservers(), 1u);
  EXPECT_GE(PserversFor(costs, PlanMode::kCollective, 8, 16), 1u);
}

TEST(PlanSearchTest, ACollectiveJobThatLeavesDenseTablesOnPserversGetsThem) {
  PlanCosts costs = DenseCosts();
  costs.set_kept_dense_bytes(kSearchMiB / 2);
  const Plan plan = AnswerPlan(costs, CollectiveQuestion());
  EXPECT_EQ(plan.mode(), "collective");
  for (const PlanRow& row : plan.rows()) EXPECT_GE(row.pservers(), 1u);
  EXPECT_GE(PserversFor(costs, PlanMode::kCollective, 8, 16), 1u);
}

TEST(PlanSearchTest, AnAsyncJobWithoutSparseTablesGetsPservers) {
  PlanQuestion question = CollectiveQuestion();
  question.mode = PlanMode::kAsync;
  const Plan plan = AnswerPlan(DenseCosts(), question);
  for (const PlanRow& row : plan.rows()) EXPECT_GE(row.pservers(), 1u);
}

TEST(PlanSearchTest, TheClusterOfACollectivePlanHasNoPservers) {
  PlanQuestion question = CollectiveQuestion();
  question.hosts = Hosts({{"127.0.0.1", 4}});
  question.workers = {3};
  const auto cluster = ClusterOf(AnswerPlan(DenseCosts(), question), 7100);
  ASSERT_TRUE(cluster.ok());
  EXPECT_EQ(cluster->pservers_size(), 0);
  EXPECT_EQ(cluster->worker_num(), 3u);
  EXPECT_TRUE(ValidateClusterConfig(WithDefaults(*cluster)).ok());
}

TEST(PlanSearchTest, OwnHostsHaveNoNamesForACluster) {
  PlanQuestion question;
  question.workers = {1};
  question.pservers = {1};
  EXPECT_EQ(ClusterOf(AnswerPlan(SearchCosts(), question), 7100).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sluice::plan
