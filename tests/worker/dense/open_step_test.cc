#include "worker/dense/open_step.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/worker/fake_collective.h"

namespace sluice {
namespace {

class OpenStepTest : public ::testing::Test {
 protected:
  OpenStepTest() : step_(Tables(), &collective_, /*max_bytes=*/1 << 20, /*max_tables=*/20) {}

  static TableLayouts Tables() {
    google::protobuf::RepeatedPtrField<TableConfig> tables;
    TableConfig* const table = tables.Add();
    table->set_name("t");
    table->set_kind(TableConfig::DENSE);
    table->add_shape(2);
    table->mutable_optimizer()->mutable_sgd();
    table->mutable_optimizer()->set_learning_rate(1);
    table->set_update_at(TableConfig::COLLECTIVE);
    return *CreateTableLayouts(tables, 1);
  }
  // Reduces a gradient of ones; `weight` 0: the rank has no examples.
  void Reduce(uint64_t step, double weight = 1) {
    const std::vector<float> ones(2, 1);
    step_.exchange().PutRest(step, weight, {weight == 0 ? nullptr : ones.data()});
    ASSERT_TRUE(step_.exchange().Wait().ok());
    step_.SetMeansOf(step);
  }
  float value() const { return step_.replica().values(0)[1]; }

  FakeCollective collective_;
  OpenStep step_;
};

TEST_F(OpenStepTest, ClosesOnceWithTheMeans) {
  EXPECT_FALSE(step_.has_means());
  Reduce(0);
  EXPECT_TRUE(step_.has_means());
  EXPECT_EQ(value(), 0);
  step_.Close(1);
  EXPECT_EQ(value(), -1);
  EXPECT_EQ(step_.closed(), 1u);
  EXPECT_FALSE(step_.has_means());
  step_.Close(1);
  EXPECT_EQ(value(), -1);
  Reduce(1);
  step_.Close(2);
  EXPECT_EQ(value(), -2);
}

TEST_F(OpenStepTest, StaysOpenWithoutItsMeans) {
  step_.Close(1);
  EXPECT_EQ(step_.closed(), 0u);
  Reduce(0);
  step_.DropMeans();
  step_.Close(1);
  EXPECT_EQ(step_.closed(), 0u);
  step_.SetMeansOf(3);
  EXPECT_FALSE(step_.has_means()) << "those of another step";
  step_.Close(1);
  EXPECT_EQ(step_.closed(), 0u);
  EXPECT_EQ(value(), 0);
}

TEST_F(OpenStepTest, AStepWithoutExamplesClosesWithoutAnUpdate) {
  Reduce(0, /*weight=*/0);
  step_.Close(1);
  EXPECT_EQ(step_.closed(), 1u);
  EXPECT_EQ(value(), 0);
}

}  // namespace
}  // namespace sluice
