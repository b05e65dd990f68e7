// Tests Geo's values on a device, on a network that also runs steps of other kinds.
#include "gmock/gmock.h"
#include "model/wide_deep/cuda/cuda_net.h"
#include "tests/model/net/cuda/gpu_for_test.h"
#include "tests/model/wide_deep/cuda/geo_reference.h"
#include "tests/model/wide_deep/cuda/resident_cases.h"

namespace sluice {
namespace {

NetOptions Cuda() {
  NetOptions options;
  options.device.kind = ComputeDevice::kCuda;
  options.threads = 2;
  return options;
}
MakeNet CudaGeoStepsOnDevice() {
  return [](const WideDeepShape& shape) {
    auto net = CreateCudaNet(shape, Cuda());
    EXPECT_TRUE(net.ok()) << net.status();
    return *std::move(net);
  };
}

// Alternates steps on Geo's values with steps that bring their own values, on one network.
class CudaGeoStepsTest : public ::testing::Test {
 protected:
  CudaGeoStepsTest() : here_(SmallShape(), 40), there_(SmallShape(), 40, /*seed=*/2) {
    std::vector<std::vector<uint64_t>> dense;
    for (const size_t n : here_.shape().dense_elements()) dense.push_back({n});
    OptimizerConfig sgd;
    sgd.mutable_sgd();
    sgd.set_learning_rate(0.1f);
    layouts_ = cuda::GeoLayouts(dense, {sgd, sgd}, {1, here_.shape().embedding_dims[0]}, sgd);
    for (uint32_t i = 0; i < 40; ++i) slots_.push_back((i * 7 + 3) % 40);
  }

  // Puts the values of the case on the device of `net`, with row i in slots_[i].
  std::unique_ptr<GeoOptimizer> Place(DenseNet* net, NetCase* c) {
    std::vector<const TableLayout*> dense;
    std::vector<const float*> start;
    for (size_t i = 1; i < layouts_.size(); ++i) dense.push_back(layouts_[i].get());
    for (const auto& tensor : c->dense()) start.push_back(tensor.data());
    auto geo = *net->MakeGeoOptimizer(dense, {layouts_[0].get()}, 0);
    EXPECT_TRUE(geo->SetDense(start).ok());
    const size_t rows = slots_.size();
    const std::vector<uint8_t> fresh(rows, 1);
    EXPECT_TRUE(geo->FillRows(0, {slots_.data(), rows}, fresh.data(), c->rows().data()).ok());
    return geo;
  }
  NetInput OnGeo(const TestStep& step, const GeoOptimizer* geo) const {
    NetInput input = there_.Input(step);
    input.rows[0].n = slots_.size();
    input.rows[0].values = nullptr;
    input.dense.clear();
    input.geo = geo;
    input.rows[0].slots = slots_.data();
    return input;
  }
  absl::Status Update(GeoOptimizer* geo) const {
    const std::vector<uint64_t> counts(slots_.size(), 1);
    GeoUpdate update;
    update.rows.resize(1);
    update.rows[0].slots = slots_.data(), update.rows[0].counts = counts.data();
    update.rows[0].n = slots_.size();
    update.dense_count = update.schedule_step = 1;
    return geo->Update(update);
  }
  std::vector<std::vector<float>> Delta(GeoOptimizer* geo) const {
    std::vector<std::vector<float>> delta = {
        std::vector<float>(slots_.size() * here_.shape().row_dim(0))};
    for (const size_t n : here_.shape().dense_elements()) delta.emplace_back(n);
    GeoExchange view;
    view.rows = {delta[0].data()};
    for (size_t i = 1; i < delta.size(); ++i) view.dense.push_back(delta[i].data());
    EXPECT_TRUE(geo->TakeDelta({{slots_.data(), slots_.size()}}, view).ok());
    return delta;
  }

  NetCase here_, there_;
  TableLayouts layouts_;
  std::vector<uint32_t> slots_;
};

TEST_F(CudaGeoStepsTest, EachStepReadsItsOwnValues) {
  SLUICE_NEEDS_GPU();
  const TestStep step = here_.Step(50);
  auto net = CudaGeoStepsOnDevice()(here_.shape()), plain = CudaGeoStepsOnDevice()(here_.shape());
  const auto geo = Place(net.get(), &there_);
  const OwnedGradients here = Train(here_, plain.get(), step);
  const OwnedGradients there = Train(there_, plain.get(), step);
  const std::vector<float> logits_here = here_.Logits(plain.get(), step);
  const std::vector<float> logits_there = there_.Logits(plain.get(), step);
  EXPECT_NE(here.view.loss_sum, there.view.loss_sum);
  // The three rounds run on streams, capture a graph, and launch the graph.
  for (int i = 0; i < 3; ++i) {
    ExpectSameBits(Train(here_, net.get(), step), here);
    OwnedGradients none(there_, 40);
    ASSERT_TRUE(net->TrainStep(OnGeo(step, geo.get()), 5, 0, &none.view).ok());
    EXPECT_EQ(none.view.loss_sum, there.view.loss_sum);
    EXPECT_EQ(here_.Logits(net.get(), step), logits_here);
    std::vector<float> logits(50);
    ASSERT_TRUE(net->Forward(OnGeo(step, geo.get()), logits.data()).ok());
    EXPECT_EQ(logits, logits_there);
  }
}

// An update takes the gradients of the step right before it.
TEST_F(CudaGeoStepsTest, AnUpdateTakesTheLastStepsGradientsOnce) {
  SLUICE_NEEDS_GPU();
  const TestStep step = here_.Step(50);
  auto net = CudaGeoStepsOnDevice()(here_.shape());
  const auto geo = Place(net.get(), &there_);
  OwnedGradients none(there_, 40);
  const auto train = [&] {
    EXPECT_TRUE(net->TrainStep(OnGeo(step, geo.get()), 5, 0, &none.view).ok());
  };
  const auto refused = [&] {
    EXPECT_EQ(Update(geo.get()).code(), absl::StatusCode::kFailedPrecondition);
  };
  refused();
  train();
  EXPECT_TRUE(Update(geo.get()).ok());
  refused();
  train();
  Train(here_, net.get(), step);
  refused();
  train();
  here_.Logits(net.get(), step);
  refused();
  const auto before = Delta(geo.get());
  EXPECT_NE(before[0], std::vector<float>(before[0].size(), 0.0f));
  // A larger step follows an update that may still read the gradients.
  NetCase large(here_.shape(), 50000);
  const TestStep larger = large.Step(3000);
  train();
  EXPECT_TRUE(Update(geo.get()).ok());
  Train(large, net.get(), larger);
  EXPECT_NE(Delta(geo.get()), before);
}

TEST_F(CudaGeoStepsTest, ABatchWithoutExamplesLeavesZeros) {
  SLUICE_NEEDS_GPU();
  NetOptions options = Cuda();
  options.max_batch = 16;
  auto net = *CreateCudaNet(here_.shape(), options);
  for (uint32_t i = 40; i < 300; ++i) slots_.push_back(i);
  NetCase c(here_.shape(), 300);
  const auto geo = Place(net.get(), &c);
  const TestStep step = c.Step(50), empty = c.Step(0);
  OwnedGradients none(c, 300);
  for (int i = 0; i < 2; ++i) {
    const auto before = Delta(geo.get());
    ASSERT_TRUE(net->TrainStep(OnGeo(empty, geo.get()), 5, 0, &none.view).ok());
    EXPECT_TRUE(Update(geo.get()).ok());
    EXPECT_EQ(Delta(geo.get()), before);
    ASSERT_TRUE(net->TrainStep(OnGeo(step, geo.get()), 5, 0, &none.view).ok());
    EXPECT_TRUE(Update(geo.get()).ok());
    EXPECT_NE(Delta(geo.get()), before);
  }
}

}  // namespace
}  // namespace sluice
