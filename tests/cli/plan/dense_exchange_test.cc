#include "cli/plan/dense_exchange.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/cli/plan/planned_job.h"

namespace sluice::plan {
namespace {

std::string Collective(const std::string& more = "") {
  return "strategy { a_sync: false sync_configs { dense: COLLECTIVE " + more + " } }";
}

PlanCosts CostsOf(const JobConfig& job) {
  PlanCosts costs;
  const absl::Status set = SetDenseExchange(job, &costs);
  EXPECT_TRUE(set.ok()) << set;
  return costs;
}

constexpr char kMixed[] =
    "strategy { a_sync: false sync_configs { comm_num: 2 } } "
    "tables { name: 'deep/0/weight' update_at: COLLECTIVE optimizer { sgd {} } } ";

TEST(DenseExchangeTest, TheDenseTablesThatStayOnPserversAreAPart) {
  // 4 x 8 values of deep/0/weight on the workers, without state. On the pservers 8 of deep/0/bias,
  // 8 and 1 of deep/1/*, and 1 of wide/bias, with the state of Adam.
  PlanCosts costs;
  costs.set_dense_memory_bytes(4 * (32 + 3 * 18));
  ASSERT_TRUE(SetDenseExchange(PlannedJob(kMixed), &costs).ok());
  EXPECT_EQ(costs.dense_bytes(), 4 * (32 + 18));
  EXPECT_EQ(costs.kept_dense_bytes(), 4 * 18);
  EXPECT_NEAR(costs.kept_dense_memory_bytes(), 4 * 3 * 18, 1e-6);
  // The costs may be those of another plan.
  for (const std::string& other :
       {Collective(), std::string("strategy { a_sync: false }"), std::string()}) {
    ASSERT_TRUE(SetDenseExchange(PlannedJob(other), &costs).ok());
    EXPECT_EQ(costs.kept_dense_bytes(), 0);
    EXPECT_EQ(costs.kept_dense_memory_bytes(), 0);
  }
}

TEST(DenseExchangeTest, BytesAreThoseOfTheWire) {
  const PlanCosts costs = CostsOf(PlannedJob(
      Collective() + " tables { name: 'deep/0/weight' wire_type: BF16 optimizer { sgd {} } } "));
  EXPECT_EQ(costs.dense_bytes(), 2 * 32 + 4 * 18);
}

TEST(DenseExchangeTest, ASmallModelTravelsWithOneHeader) {
  const PlanCosts costs = CostsOf(PlannedJob(Collective()));
  EXPECT_EQ(costs.exchange_batches(), 1);
  EXPECT_EQ(costs.exchange_messages(), 1);
  EXPECT_EQ(costs.exchange_whole_bytes(), costs.dense_bytes());
}

TEST(DenseExchangeTest, LargeBatchesTakeFourMessages) {
  // Two weights of 1 MiB, and the small tables in a third batch.
  const std::string units = "hidden_units: [512, 512, 512]";
  const PlanCosts costs = CostsOf(PlannedJob(Collective(), units));
  EXPECT_EQ(costs.exchange_batches(), 3);
  EXPECT_EQ(costs.exchange_messages(), 4 + 4 + 1);
  // The biases, and the weights of the first and the last layer, travel whole.
  EXPECT_EQ(costs.exchange_whole_bytes(), costs.dense_bytes() - 2 * 4 * 512 * 512);
  // Any job is asked how it would do in collective mode.
  const PlanCosts async = CostsOf(PlannedJob("", units));
  EXPECT_EQ(async.exchange_batches(), 3);
  EXPECT_EQ(async.exchange_messages(), 9);
}

TEST(DenseExchangeTest, TablesThatStayOnPserversAreNotExchanged) {
  const PlanCosts costs = CostsOf(PlannedJob(
      "strategy { a_sync: false } tables { name: 'deep/1/weight' update_at: COLLECTIVE }",
      "hidden_units: [512, 512, 512]"));
  EXPECT_EQ(costs.exchange_batches(), 1);
  EXPECT_EQ(costs.exchange_messages(), 4);
  EXPECT_EQ(costs.exchange_whole_bytes(), 0);
}

TEST(DenseExchangeTest, FusingLessTakesMoreMessages) {
  // Four small weights and biases, each alone.
  const PlanCosts costs = CostsOf(PlannedJob(Collective("fuse_layers: 1")));
  EXPECT_EQ(costs.exchange_batches(), costs.exchange_messages());
  EXPECT_GE(costs.exchange_batches(), 4);
}

}  // namespace
}  // namespace sluice::plan
