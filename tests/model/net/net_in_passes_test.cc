// Steps in passes on networks that take whole batches, against the same step in one pass.
#include "model/net/net_in_passes.h"

#include <cmath>
#include <set>

#include "common/base/mutex.h"
#include "gtest/gtest.h"
#include "tests/model/wide_deep/net_fixture.h"

namespace sluice {
namespace {

constexpr size_t kPass = 24;

WideDeepShape Shape() {
  WideDeepShape shape = WideShape({20, 10}, 4);
  shape.dropout = 0.3f;
  return shape;
}

// Passes steps on to the CPU backend, and records them as a device would see them.
class WholeNet : public DenseNet {
 public:
  explicit WholeNet(std::unique_ptr<DenseNet> net) : net_(std::move(net)) {}

  void Announce(ComingBatch next) override {
    announced.push_back(next.batch.get());
    held_ = std::move(next);
  }
  absl::Status TrainStep(const NetInput& input, uint64_t seed, uint32_t epoch,
                         NetGradients* gradients) override {
    trained.push_back(input.batch);
    sizes.push_back(input.batch->n);
    rows.emplace_back();
    for (const RowsInput& table : input.rows) rows.back().push_back(table.n);
    if (sizes.size() == overflow) {
      gradients->skipped = true;
      return absl::OkStatus();
    }
    gradients->logged.push_back({"examples", static_cast<double>(input.batch->n)});
    return net_->TrainStep(input, seed, epoch, gradients);
  }
  absl::Status Forward(const NetInput& input, float* logits) override {
    return net_->Forward(input, logits);
  }
  std::vector<MetricSum> TakeSums() override { return {{"hits", 1, 2}}; }
  absl::StatusOr<std::string> SaveState() const override { return absl::CancelledError("state"); }
  void Cancel() override { cancelled = true; }

  std::vector<const Batch*> announced, trained;
  std::vector<size_t> sizes;
  std::vector<std::vector<size_t>> rows;  // by pass and table
  size_t overflow = 0;                    // this pass overflows, from 1
  bool cancelled = false;

 private:
  const std::unique_ptr<DenseNet> net_;
  ComingBatch held_;
};

class NetInPassesTest : public ::testing::Test {
 protected:
  explicit NetInPassesTest(const WideDeepShape& shape = Shape()) : case_(shape, 60) {
    auto whole = std::make_unique<WholeNet>(case_.Net(2));
    inner_ = whole.get();
    TableSizes sizes;
    sizes.dense = shape.dense_elements();
    for (size_t t = 0; t < shape.tables(); ++t) sizes.row_dims.push_back(shape.row_dim(t));
    for (const WideDeepShape::Slot& slot : shape.slots) sizes.slot_tables.push_back(slot.table);
    NetOptions options = CpuNet(2, kPass);
    options.pass_examples = kPass;
    net_ = std::make_unique<NetInPasses>(std::move(whole), std::move(sizes), options);
  }
  TestStep Step(size_t n) {
    TestStep step = case_.Step(n);
    step.batch.chunk = 8;
    step.batch.first_position = 16;
    return step;
  }
  void ExpectLikeOnePass(const TestStep& step) {
    const OwnedGradients got = Train(case_, net_.get(), step),
                         whole = Train(case_, case_.Net().get(), step);
    EXPECT_FALSE(got.view.skipped);
    EXPECT_EQ(got.view.weight_sum, whole.view.weight_sum);
    EXPECT_NEAR(got.view.loss_sum, whole.view.loss_sum, 1e-12 * (1 + whole.view.loss_sum));
    ExpectClose(got.rows, whole.rows, 1e-7, "rows");
    for (size_t t = 0; t < got.dense.size(); ++t)
      ExpectClose(got.dense[t], whole.dense[t], 1e-7, "dense " + std::to_string(t));
  }

  NetCase case_;
  WholeNet* inner_;
  std::unique_ptr<NetInPasses> net_;
};

TEST_F(NetInPassesTest, GradientsAreThoseOfOnePassWithDropoutAndAnUnevenTail) {
  ExpectLikeOnePass(Step(4 * kPass));
  EXPECT_EQ(inner_->sizes, std::vector<size_t>(4, kPass));
  ExpectLikeOnePass(Step(2 * kPass + 5));
  EXPECT_EQ(inner_->sizes.back(), 5u);
  EXPECT_LT(inner_->rows.back()[0], 60u) << "a pass brings only the rows that it uses";
}

TEST_F(NetInPassesTest, AStepThatFitsIsGivenToTheNetworkAsItIs) {
  const TestStep step = Step(kPass);
  const OwnedGradients got = Train(case_, net_.get(), step),
                       whole = Train(case_, case_.Net().get(), step);
  EXPECT_EQ(inner_->trained, std::vector<const Batch*>({&step.batch}));
  EXPECT_EQ(got.rows, whole.rows);
  EXPECT_EQ(got.dense, whole.dense);
  EXPECT_EQ(Train(case_, net_.get(), Step(0)).view.weight_sum, 0);
}

TEST_F(NetInPassesTest, WhatTheNetworkSaysIsHandedOn) {
  const OwnedGradients got = Train(case_, net_.get(), Step(kPass + 5));
  ASSERT_EQ(got.view.logged.size(), 2u);
  EXPECT_EQ(got.view.logged[0].value, kPass);
  EXPECT_EQ(got.view.logged[1].value, 5);
  EXPECT_EQ(net_->TakeSums().size(), 1u);
  EXPECT_TRUE(absl::IsCancelled(net_->SaveState().status()));
  net_->Cancel();
  EXPECT_TRUE(inner_->cancelled);
}

TEST_F(NetInPassesTest, PassesWithoutWeightAddNothing) {
  TestStep step = Step(3 * kPass);
  std::fill_n(step.batch.weight.begin() + kPass, kPass, 0.0f);
  ExpectLikeOnePass(step);
  step.batch.weight.assign(3 * kPass, 0.0f);
  const OwnedGradients none = Train(case_, net_.get(), step);
  EXPECT_EQ(none.view.weight_sum, 0);
  for (const auto& table : none.rows) EXPECT_EQ(table, std::vector<float>(table.size(), 0.0f));
  for (const auto& tensor : none.dense) EXPECT_EQ(tensor, std::vector<float>(tensor.size(), 0.0f));
}

TEST_F(NetInPassesTest, AnOverflowInAnyPassSkipsTheStepAndTheNextStepIsWhole) {
  for (const size_t pass : {1, 2, 3}) {
    inner_->sizes.clear();
    inner_->overflow = pass;
    const OwnedGradients got = Train(case_, net_.get(), Step(3 * kPass));
    EXPECT_TRUE(got.view.skipped);
    EXPECT_EQ(got.view.weight_sum, 0);
    EXPECT_EQ(got.view.loss_sum, 0);
    EXPECT_EQ(inner_->sizes.size(), pass) << "passes after the overflow";
    inner_->overflow = 0;
    ExpectLikeOnePass(Step(3 * kPass));
  }
}

TEST_F(NetInPassesTest, GradientsAreReadyOnceAndFinalInTheLastPass) {
  const TestStep step = Step(3 * kPass);
  const OwnedGradients expected = Train(case_, net_.get(), step);
  const NetInput input = case_.Input(step);
  OwnedGradients got(case_, input);
  std::multiset<size_t> ready;
  Mutex mutex;
  got.view.ready = [&](size_t t) {
    MutexLock lock(&mutex);
    EXPECT_EQ(inner_->sizes.size() % 3, 0u);
    EXPECT_EQ(got.dense[t], expected.dense[t]);
    EXPECT_EQ(got.view.weight_sum, expected.view.weight_sum);
    ready.insert(t);
  };
  ASSERT_TRUE(net_->TrainStep(input, 5, 0, &got.view).ok());
  EXPECT_EQ(ready, std::multiset<size_t>({0, 2}));
  EXPECT_EQ(got.dense, expected.dense);
  EXPECT_EQ(got.rows, expected.rows);
}

TEST_F(NetInPassesTest, EachPassIsAnnouncedBeforeThePassBeforeIt) {
  const TestStep first = Step(3 * kPass), second = Step(2 * kPass);
  ComingBatch next;
  next.batch = std::shared_ptr<const Batch>(&second.batch, [](const Batch*) {});
  next.row_index = second.row_index.data();
  next.num_rows = {60};
  net_->Announce(next);
  Train(case_, net_.get(), first);
  ASSERT_EQ(inner_->announced.size(), 3u);
  const OwnedGradients got = Train(case_, net_.get(), second),
                       whole = Train(case_, case_.Net().get(), second);
  ExpectClose(got.rows, whole.rows, 1e-7, "rows");
  ASSERT_EQ(inner_->trained.size(), 5u);
  EXPECT_EQ(std::vector<const Batch*>(inner_->trained.begin() + 1, inner_->trained.end()),
            inner_->announced);
}

TEST_F(NetInPassesTest, AnotherBatchThanTheAnnouncedOneIsTrained) {
  const TestStep first = Step(2 * kPass), announced = Step(2 * kPass), second = Step(2 * kPass);
  ComingBatch next;
  next.batch = std::shared_ptr<const Batch>(&announced.batch, [](const Batch*) {});
  next.row_index = announced.row_index.data();
  next.num_rows = {60};
  net_->Announce(next);
  Train(case_, net_.get(), first);
  ExpectLikeOnePass(second);
}

class SeveralTablesInPassesTest : public NetInPassesTest {
 protected:
  static WideDeepShape SeveralTables() {
    WideDeepShape shape = ShapeOfSeveralTables();
    shape.dropout = 0.3f;
    return shape;
  }
  SeveralTablesInPassesTest() : NetInPassesTest(SeveralTables()) {}
};

TEST_F(SeveralTablesInPassesTest, GradientsAreThoseOfOnePass) {
  ExpectLikeOnePass(Step(4 * kPass));
  ExpectLikeOnePass(Step(2 * kPass + 5));
  for (const size_t n : inner_->rows.back()) EXPECT_LT(n, 60u);
}

TEST_F(SeveralTablesInPassesTest, AnAnnouncedBatchIsCopiedAheadUnlessItsRowsDiffer) {
  const TestStep first = Step(3 * kPass), second = Step(2 * kPass);
  for (const size_t last : {60, 61}) {
    inner_->announced.clear(), inner_->trained.clear();
    ComingBatch next;
    next.batch = std::shared_ptr<const Batch>(&second.batch, [](const Batch*) {});
    next.row_index = second.row_index.data();
    next.num_rows = {60, 60, 60, last};
    net_->Announce(next);
    Train(case_, net_.get(), first);
    ExpectLikeOnePass(second);
    EXPECT_EQ(inner_->trained[3] == inner_->announced[2], last == 60);
  }
}

TEST_F(SeveralTablesInPassesTest, OtherTablesAreRefused) {
  const TestStep step = Step(2 * kPass);
  NetInput input = case_.Input(step);
  OwnedGradients gradients(case_, input);
  input.rows.pop_back();
  EXPECT_EQ(net_->TrainStep(input, 5, 0, &gradients.view).code(),
            absl::StatusCode::kInvalidArgument);
  input = case_.Input(step);
  input.rows[3].values = nullptr;
  EXPECT_EQ(net_->TrainStep(input, 5, 0, &gradients.view).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(NetInPassesTest, ValuesThatStayInTheNetworkAreRefused) {
  const TestStep step = Step(2 * kPass);
  NetInput input = case_.Input(step);
  OwnedGradients gradients(case_, input);
  input.rows[0].values = nullptr;
  EXPECT_EQ(net_->TrainStep(input, 5, 0, &gradients.view).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sluice
