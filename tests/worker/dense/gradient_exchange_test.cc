// The exchange of gradients, with an engine whose other rank is made up by the test, and with the
// gradients of a real network.
#include "worker/dense/gradient_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/model/wide_deep/net_fixture.h"
#include "tests/worker/fake_collective.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kMaxBytes = 32 << 20;

TableLayouts GradientExchangeTables(const std::vector<uint64_t>& sizes,
                                    const std::vector<TableConfig::WireType>& wires = {}) {
  google::protobuf::RepeatedPtrField<TableConfig> tables;
  for (size_t i = 0; i < sizes.size(); ++i) {
    TableConfig* const table = tables.Add();
    table->set_name(absl::StrCat("table", i));
    table->set_kind(TableConfig::DENSE);
    table->add_shape(sizes[i]);
    table->mutable_optimizer()->mutable_sgd();
    table->mutable_optimizer()->set_learning_rate(1);
    table->set_update_at(TableConfig::COLLECTIVE);
    if (!wires.empty()) table->set_wire_type(wires[i]);
  }
  return *CreateTableLayouts(tables, /*seed=*/1);
}

// GradientExchangeTables of 2, 3 and 1 elements in buckets {2, 1} and {0}. All gradients are 1.
class GradientExchangeTest : public ::testing::Test {
 protected:
  void PutRest() { exchange_.PutRest(/*step=*/6, /*weight=*/4, {ones_, ones_, ones_}); }

  const float ones_[3] = {1, 1, 1};
  FakeCollective engine_;
  GradientExchange exchange_{GradientExchangeTables({2, 3, 1}), &engine_, kMaxBytes,
                             /*max_tables=*/2};
};

TEST_F(GradientExchangeTest, BucketsLeaveInOrderAsSoonAsTheyAreFull) {
  exchange_.Put(6, 4, 0, ones_);
  exchange_.Put(6, 4, 2, ones_);
  EXPECT_THAT(engine_.sizes, IsEmpty()) << "the first bucket lacks a table";
  exchange_.Put(6, 4, 1, ones_);
  EXPECT_THAT(engine_.sizes, ElementsAre(5, 3));
  PutRest();
  EXPECT_THAT(engine_.sizes, ElementsAre(5, 3)) << "each leaves once";
  EXPECT_THAT(engine_.waited, IsEmpty());
  ASSERT_TRUE(exchange_.Wait().ok());
  EXPECT_THAT(engine_.waited, ElementsAre(1, 2));
  EXPECT_THAT(engine_.steps, ElementsAre(6, 6));
  EXPECT_THAT(engine_.weights, ElementsAre(4, 4));
}

TEST_F(GradientExchangeTest, HasTheMeansOverTheRanks) {
  engine_.other = 5;
  engine_.other_weight = 12;
  PutRest();
  ASSERT_TRUE(exchange_.Wait().ok());
  for (size_t t = 0; t < 3; ++t) EXPECT_EQ(exchange_.mean(t)[0], 4);  // (4 + 12 * 5) / 16
  EXPECT_EQ(exchange_.mean(1)[2], 4);
}

TEST_F(GradientExchangeTest, ThereAreNoMeansWithoutExamples) {
  exchange_.PutRest(6, 0, {nullptr, nullptr, nullptr});
  ASSERT_TRUE(exchange_.Wait().ok());
  for (size_t t = 0; t < 3; ++t) EXPECT_EQ(exchange_.mean(t), nullptr);
}

TEST_F(GradientExchangeTest, MeansThatCameFromAnotherRankAreTheSame) {
  PutRest();
  ASSERT_TRUE(exchange_.Wait().ok());
  GradientExchange other(GradientExchangeTables({2, 3, 1}), &engine_, kMaxBytes, 2);
  const std::vector<absl::Span<float>> from = exchange_.Arrays(), to = other.Arrays();
  ASSERT_EQ(from.size(), to.size());
  for (size_t i = 0; i < to.size(); ++i) std::copy(from[i].begin(), from[i].end(), to[i].begin());
  for (size_t t = 0; t < 3; ++t) EXPECT_EQ(other.mean(t)[0], 1);
}

TEST_F(GradientExchangeTest, StepsAreExchangedAgainAfterClear) {
  exchange_.Put(6, 4, 2, ones_);
  engine_.wait_status = absl::UnavailableError("rank 1 has ended");
  PutRest();
  EXPECT_TRUE(absl::IsUnavailable(exchange_.Wait()));
  engine_.wait_status = absl::OkStatus();
  exchange_.Clear();
  exchange_.Put(6, 4, 1, ones_);
  EXPECT_EQ(engine_.sizes.size(), 2u) << "the first bucket lacks a table again";
  PutRest();
  EXPECT_TRUE(exchange_.Wait().ok());
  EXPECT_THAT(engine_.sizes, ElementsAre(5, 3, 5, 3));
}

TEST_F(GradientExchangeTest, GradientsThatAreNotFiniteNeverLeave) {
  const float bad[] = {0, 0, std::numeric_limits<float>::quiet_NaN()};
  exchange_.Put(6, 4, 1, bad);
  exchange_.Put(6, 4, 2, ones_);
  PutRest();
  const absl::Status status = exchange_.Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'table1'"));
  EXPECT_THAT(engine_.sizes, IsEmpty());
}

TEST_F(GradientExchangeTest, MeansThatOverflowFailTheStepAndNameTheTable) {
  engine_.other = std::numeric_limits<double>::infinity();
  engine_.other_weight = 1;
  PutRest();
  const absl::Status status = exchange_.Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'table2'"));
}

TEST(GradientExchangeWireTest, BucketsTravelInTheWireTypeOfTheirTables) {
  FakeCollective engine;
  GradientExchange exchange(
      GradientExchangeTables({2, 3, 1}, {TableConfig::F32, TableConfig::BF16, TableConfig::F32}),
      &engine, kMaxBytes, 2);
  const float ones[] = {1, 1, 1};
  exchange.PutRest(0, 4, {ones, ones, ones});
  EXPECT_THAT(engine.sizes, ElementsAre(2, 4, 3));  // {2}, {1} and {0}
  EXPECT_THAT(engine.wires,
              ElementsAre(Collective::Wire::kF32, Collective::Wire::kBf16, Collective::Wire::kF32));
}

// The network reports the weights of its hidden layers only, from the last layer on.
TEST(GradientExchangeOverlapTest, BucketsOfANetworkLeaveBeforeItsStepEnds) {
  NetCase net_case(WideShape({300, 300, 200}, 8), /*num_rows=*/40);
  std::vector<uint64_t> sizes;
  for (const size_t n : net_case.shape().dense_elements()) sizes.push_back(n);
  FakeCollective engine;
  GradientExchange exchange(GradientExchangeTables(sizes), &engine, kMaxBytes, /*max_tables=*/20);
  const TestStep step = net_case.Step(64);
  const NetInput input = net_case.Input(step);
  OwnedGradients gradients(net_case, input);
  std::vector<size_t> layers_left, sent;  // by call of `ready`
  gradients.view.ready = [&](size_t t) {
    layers_left.push_back(t / 2);
    exchange.Put(0, gradients.view.weight_sum, t, gradients.dense[t].data());
    sent.push_back(engine.sizes.size());
  };
  ASSERT_TRUE(net_case.Net(1, 64)->TrainStep(input, /*seed=*/5, /*epoch=*/0, &gradients.view).ok());
  EXPECT_THAT(layers_left, ElementsAre(2, 1, 0));
  // The weights of layers 2 and 1 are large, those of layer 0 are not.
  ASSERT_THAT(sent, ElementsAre(0, 1, 1));
  EXPECT_EQ(engine.weights[0], gradients.view.weight_sum);
  std::vector<const float*> all;
  for (const std::vector<float>& gradient : gradients.dense) all.push_back(gradient.data());
  exchange.PutRest(0, gradients.view.weight_sum, all);
  ASSERT_TRUE(exchange.Wait().ok());
  // The other rank has no examples, and weights are divided out up to rounding.
  for (size_t t = 0; t < all.size(); ++t) {
    const std::vector<float> mean(exchange.mean(t), exchange.mean(t) + sizes[t]);
    ExpectClose(mean, gradients.dense[t], 1e-6, absl::StrCat("table ", t));
  }
}

}  // namespace
}  // namespace sluice
