// Compares a whole Geo run of several exchanges on the (emulated) device with the same run on the
// CPU. A run has networks, a store, an optimizer and a server that merges.
#include <cmath>
#include <map>
#include <random>

#include "client/key_set.h"
#include "gtest/gtest.h"
#include "model/wide_deep/cuda/cuda_net.h"
#include "tests/model/net/cuda/gpu_for_test.h"
#include "tests/model/wide_deep/cuda/emulated_tables.h"
#include "tests/model/wide_deep/net_fixture.h"
#include "worker/step/geo_parameters.h"

namespace sluice {
namespace {

constexpr uint64_t kKeys = 300;

// The wide column uses FTRL, the embedding Adam with clipping by row norm, dense tables momentum.
TableLayouts Layouts(const WideDeepShape& shape) {
  google::protobuf::RepeatedPtrField<TableConfig> tables;
  TableConfig* rows = tables.Add();
  rows->set_name("rows");
  rows->set_kind(TableConfig::SPARSE);
  rows->set_num_shards(4);
  ColumnGroup* wide = rows->add_columns();
  wide->set_name("wide");
  wide->set_dim(1);
  wide->mutable_optimizer()->mutable_ftrl()->set_l1(0.001f);
  wide->mutable_initializer()->set_constant(0);
  ColumnGroup* embedding = rows->add_columns();
  embedding->set_name("embedding");
  embedding->set_dim(shape.embedding_dims[0]);
  embedding->mutable_optimizer()->mutable_adam();
  embedding->mutable_optimizer()->set_learning_rate(0.01f);
  embedding->mutable_optimizer()->set_clip_row_norm(0.01f);
  embedding->mutable_initializer()->set_constant(0);
  for (const size_t n : shape.dense_elements()) {
    TableConfig* dense = tables.Add();
    dense->set_name("dense" + std::to_string(tables.size()));
    dense->set_kind(TableConfig::DENSE);
    dense->add_shape(n);
    dense->mutable_optimizer()->mutable_momentum();
    dense->mutable_optimizer()->set_learning_rate(0.05f);
    dense->mutable_initializer()->set_constant(0);
  }
  auto layouts = CreateTableLayouts(tables, 1);
  EXPECT_TRUE(layouts.ok()) << layouts.status();
  return *layouts;
}

// A step's batch with its unique keys, as the reader prepares it.
struct Step {
  TestStep batch;
  KeySet keys;
};

class Run {
 public:
  Run(const TableLayouts& layouts, DenseNet* net, uint64_t max_rows)
      : layouts_(layouts), net_(net) {
    std::vector<const TableLayout*> dense;
    std::mt19937_64 random(9);
    std::vector<const float*> start;
    for (size_t i = 1; i < layouts.size(); ++i) {
      dense.push_back(layouts[i].get());
      server_dense_.emplace_back(dense.back()->elements());
      for (float& value : server_dense_.back())
        value = std::uniform_real_distribution<float>(-0.5f, 0.5f)(random);
    }
    for (const auto& values : server_dense_) start.push_back(values.data());
    const std::vector<const TableLayout*> sparse = {layouts[0].get()};
    auto values = net->MakeGeoOptimizer(dense, sparse, /*clip_global_norm=*/0);
    EXPECT_TRUE(values.ok()) << values.status();
    store_ = std::make_unique<GeoParameters>(dense, sparse, max_rows, *std::move(values));
    EXPECT_TRUE(store_->SetDense(start).ok());
  }

  bool on_device() const { return store_->device() != nullptr; }
  size_t pulled() const { return pulled_; }
  const std::map<uint64_t, std::vector<float>>& rows() const { return server_rows_; }
  const std::vector<std::vector<float>>& dense() const { return server_dense_; }

  // `next` may be null.
  double Train(const Step& step, const std::shared_ptr<const Step>& next) {
    if (next != nullptr) {
      net_->Announce({std::shared_ptr<const Batch>(next, &next->batch.batch),
                      next->batch.row_index.data(),
                      {next->keys.keys.size()}});
    }
    const size_t dim = layouts_[0]->dim();
    store_->Find({step.keys}, &found_);
    std::vector<float> values;
    for (const uint64_t key : found_[0].missing.keys) {
      const std::vector<float>& row = Row(key);
      values.insert(values.end(), row.begin(), row.end());
    }
    pulled_ += found_[0].missing.keys.size();
    EXPECT_TRUE(store_->Fill(0, &found_, values.data()).ok());
    NetInput input;
    input.batch = &step.batch.batch;
    input.row_index = step.batch.row_index.data();
    input.rows.resize(1);
    input.rows[0].n = step.keys.keys.size();
    NetGradients gradients;
    std::vector<float> rows(input.rows[0].n * dim), row_gradients(rows.size());
    std::vector<std::vector<float>> dense_gradients;
    std::vector<const float*> view;
    if (on_device()) {
      input.geo = store_->device();
      input.rows[0].slots = found_[0].slots.data();
    } else {
      store_->Gather(0, found_, rows.data());
      input.rows[0].values = rows.data();
      gradients.rows = {row_gradients.data()};
      for (size_t i = 0; i < server_dense_.size(); ++i) {
        input.dense.push_back(store_->dense(i));
        dense_gradients.emplace_back(server_dense_[i].size());
      }
      for (auto& tensor : dense_gradients) {
        gradients.dense.push_back(tensor.data());
        view.push_back(tensor.data());
      }
    }
    const absl::Status status = net_->TrainStep(input, 5, 0, &gradients);
    EXPECT_TRUE(status.ok()) << status;
    std::vector<const float*> row_view;
    if (!on_device()) row_view.push_back(row_gradients.data());
    EXPECT_TRUE(store_->Update(found_, row_view, view, steps_++).ok());
    return gradients.loss_sum / gradients.weight_sum;
  }

  // The server adds half of the delta, and half of the delta of another, imaginary worker.
  void Exchange() {
    const size_t dim = layouts_[0]->dim();
    std::vector<KeySet> sets;
    GeoParameters::Values delta, server;
    EXPECT_TRUE(store_->TakeDelta(&sets, &delta).ok());
    const std::vector<uint64_t>& keys = sets[0].keys;
    server.rows.resize(1);
    for (size_t i = 0; i < keys.size(); ++i) {
      std::vector<float>& row = Row(keys[i]);
      for (size_t d = 0; d < dim; ++d) row[d] += 0.5f * delta.rows[0][i * dim + d] + 1e-3f;
      server.rows[0].insert(server.rows[0].end(), row.begin(), row.end());
    }
    for (size_t t = 0; t < delta.dense.size(); ++t) {
      for (size_t i = 0; i < delta.dense[t].size(); ++i)
        server_dense_[t][i] += 0.5f * delta.dense[t][i] + 1e-3f;
    }
    server.dense = server_dense_;
    EXPECT_TRUE(store_->Merge(&delta, &server).ok());
  }

 private:
  std::vector<float>& Row(uint64_t key) {
    std::vector<float>& row = server_rows_[key];
    while (row.size() < layouts_[0]->dim())
      row.push_back(0.1f * std::sin(static_cast<float>(key * 31 + row.size())));
    return row;
  }

  const TableLayouts& layouts_;
  DenseNet* const net_;
  std::unique_ptr<GeoParameters> store_;
  GeoParameters::Found found_;
  std::map<uint64_t, std::vector<float>> server_rows_;
  std::vector<std::vector<float>> server_dense_;
  uint64_t steps_ = 0;
  size_t pulled_ = 0;
};

WideDeepShape Shape() {
  WideDeepShape shape = WideShape({9, 5}, 5);
  shape.dropout = 0.2f;
  return shape;
}

void ExpectRunsLikeTheCpu(uint64_t max_rows, DenseNet* net, double tol) {
  const WideDeepShape shape = Shape();
  const TableLayouts layouts = Layouts(shape);
  NetCase c(shape, kKeys);
  auto cpu = c.Net();
  Run here(layouts, cpu.get(), max_rows), there(layouts, net, max_rows);
  EXPECT_FALSE(here.on_device());
  EXPECT_TRUE(there.on_device());
  KeyDeduplicator dedup;
  std::vector<std::shared_ptr<const Step>> steps;
  for (int step = 0; step < 25; ++step) {
    auto s = std::make_shared<Step>();
    s->batch = c.Step(step % 9 == 0 ? 1 : 12);
    std::vector<uint64_t>& keys = s->batch.batch.keys;
    for (size_t i = 0; i < keys.size(); ++i)
      keys[i] = s->batch.row_index[i] % (40 + 6 * step);  // the keys in use change slowly
    dedup.Run(*layouts[0], keys.data(), keys.size(), &s->keys, s->batch.row_index.data());
    steps.push_back(std::move(s));
  }
  steps.push_back(nullptr);
  for (int step = 0; step < 25; ++step) {
    EXPECT_NEAR(here.Train(*steps[step], steps[step + 1]),
                there.Train(*steps[step], steps[step + 1]), tol)
        << "step " << step;
    if (step % 5 == 4) here.Exchange(), there.Exchange();
  }
  EXPECT_EQ(net->device_stats().steps_ahead, 24u);
  EXPECT_EQ(here.pulled(), there.pulled());
  ASSERT_EQ(here.rows().size(), there.rows().size());
  for (const auto& [key, row] : here.rows())
    ExpectClose(there.rows().at(key), row, tol, "row " + std::to_string(key));
  for (size_t i = 0; i < here.dense().size(); ++i)
    ExpectClose(there.dense()[i], here.dense()[i], tol, "dense " + std::to_string(i));
}

void ExpectEmulatedRunsLikeTheCpu(uint64_t max_rows, cuda::Element element, double tol) {
  cuda::EmulatedNet net(Shape(), element, element == cuda::Element::kFp16 ? 128 : 1);
  ExpectRunsLikeTheCpu(max_rows, &net, tol);
}

TEST(GeoOnDeviceTest, FiveExchangesMatchTheCpu) {
  ExpectEmulatedRunsLikeTheCpu(1000, cuda::Element::kF32, 2e-4);
}

TEST(GeoOnDeviceTest, EvictedRowsThatReturnMatchTheCpu) {
  ExpectEmulatedRunsLikeTheCpu(50, cuda::Element::kF32, 2e-4);
}

TEST(GeoOnDeviceTest, SixteenBitProductsStayClose) {
  ExpectEmulatedRunsLikeTheCpu(1000, cuda::Element::kBf16, 0.05);
  ExpectEmulatedRunsLikeTheCpu(1000, cuda::Element::kFp16, 0.05);
}

TEST(GeoOnDeviceTest, RunOnAGpuMatchesTheCpu) {
  SLUICE_NEEDS_GPU();
  NetOptions options;
  options.device.kind = ComputeDevice::kCuda;
  options.threads = 2;
  const auto expect = [&](uint64_t max_rows, MatmulPrecision precision, double tol) {
    options.precision = precision;
    auto net = CreateCudaNet(Shape(), options);
    ASSERT_TRUE(net.ok()) << net.status();
    ExpectRunsLikeTheCpu(max_rows, net->get(), tol);
  };
  expect(1000, MatmulPrecision::kF32, 2e-4);
  expect(50, MatmulPrecision::kF32, 2e-4);
  expect(1000, MatmulPrecision::kFp16, 0.05);
}

}  // namespace
}  // namespace sluice
