#include "model/net/dense_embedding_net.h"

#include <numeric>
#include <random>
#include <utility>

#include "gmock/gmock.h"
#include "tests/model/wide_deep/net_fixture.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kSeed = 5;
constexpr size_t kKeys = 21;
// The keys of each slot of SmallShape. Slot 3 is in the deep part alone, slot 1 in the wide part.
constexpr std::pair<uint64_t, uint64_t> kSlotKeys[] = {{5, 12}, {15, 21}, {12, 15}, {0, 5}};

// Values of whole tables, a batch, and the same model with all rows in the layout of a sparse
// table.
class DenseEmbeddingTest : public ::testing::Test {
 protected:
  DenseEmbeddingTest() { SetShape(SmallShape()); }

  void SetShape(const WideDeepShape& shape) {
    shape_ = shape;
    const size_t dim = shape_.embedding_dims[0];
    tables_.clear();
    const size_t deep_rows = shape_.slots[1].deep ? kKeys : 15;
    if (dim > 0) tables_.push_back({0, deep_rows, dim, shape_.embedding_begin(0)});
    if (shape_.wide_columns[0]) tables_.push_back({5, 16, 1, 0});
    dense_.clear();
    for (const auto& table : tables_) dense_.push_back(Values(table.rows * table.dim));
    for (const size_t n : shape_.dense_elements()) dense_.push_back(Values(n));
    rows_.assign(kKeys * shape_.row_dim(0), 0.0f);
    for (size_t t = 0; t < tables_.size(); ++t) {
      for (size_t i = 0; i < dense_[t].size(); ++i) rows_[RowPlace(t, i)] = dense_[t][i];
    }
  }
  // Where element i of table t is in rows_.
  size_t RowPlace(size_t t, size_t i) const {
    const DenseEmbeddingNet::Table& table = tables_[t];
    return (table.first_key + i / table.dim) * shape_.row_dim(0) + table.begin + i % table.dim;
  }

  std::unique_ptr<DenseNet> SparseNet(int threads) const {
    auto net = WideDeepNet::Create(shape_, threads, 8);
    EXPECT_TRUE(net.ok()) << net.status();
    return *std::move(net);
  }
  std::unique_ptr<DenseNet> Net(int threads = 1) const {
    return std::make_unique<DenseEmbeddingNet>(SparseNet(threads), tables_, shape_.row_dim(0),
                                               threads);
  }

  Batch MakeBatch(size_t n) {
    Batch batch;
    batch.Reset(shape_.num_numeric, shape_.slots.size());
    for (size_t i = 0; i < n; ++i) {
      batch.label.push_back(random_() % 2);
      batch.weight.push_back(static_cast<float>(random_() % 4) / 2 + 0.5f);
      batch.example_id.push_back(random_() % 1000003);
      for (size_t j = 0; j < shape_.num_numeric; ++j) batch.numeric.push_back(Value());
      for (size_t s = 0; s < shape_.slots.size(); ++s) {
        const auto [begin, end] = kSlotKeys[s];
        for (uint64_t k = random_() % 4; k > 0; --k)
          batch.keys.push_back(begin + random_() % (end - begin));
        batch.key_offsets.push_back(batch.keys.size());
      }
    }
    batch.n = n;
    return batch;
  }

  NetInput Input(const Batch& batch) const {
    NetInput input;
    input.batch = &batch;
    for (const auto& tensor : dense_) input.dense.push_back(tensor.data());
    return input;
  }
  // The same step with the rows of a sparse table: row u is that of key u.
  NetInput SparseInput(const Batch& batch, std::vector<uint32_t>* row_index) const {
    row_index->assign(batch.keys.begin(), batch.keys.end());
    NetInput input;
    input.batch = &batch;
    input.row_index = row_index->data();
    RowsInput rows;
    rows.values = rows_.data();
    rows.n = kKeys;
    input.rows = {rows};
    for (size_t t = tables_.size(); t < dense_.size(); ++t) input.dense.push_back(dense_[t].data());
    return input;
  }

  struct Gradients {
    std::vector<float> rows;
    std::vector<std::vector<float>> dense;
    NetGradients view;
  };
  // Full of NaN, which exposes what a step does not write.
  std::unique_ptr<Gradients> Empty(size_t first_tensor) const {
    auto g = std::make_unique<Gradients>();
    g->rows.assign(rows_.size(), std::nanf(""));
    for (size_t t = first_tensor; t < dense_.size(); ++t)
      g->dense.emplace_back(dense_[t].size(), std::nanf(""));
    g->view.rows = {g->rows.data()};
    for (auto& tensor : g->dense) g->view.dense.push_back(tensor.data());
    return g;
  }
  std::unique_ptr<Gradients> Train(DenseNet* net, const Batch& batch) const {
    auto g = Empty(0);
    const absl::Status status = net->TrainStep(Input(batch), kSeed, 2, &g->view);
    EXPECT_TRUE(status.ok()) << status;
    return g;
  }

  // Compares a step with the float64 reference of the whole model, and to the bit with the network
  // on rows.
  void ExpectStepIsRight(DenseNet* net, const Batch& batch, int threads) {
    std::vector<uint32_t> row_index;
    const NetInput sparse_input = SparseInput(batch, &row_index);
    const auto sparse_net = SparseNet(threads);
    std::vector<float> logits(batch.n), sparse_logits(batch.n);
    ASSERT_TRUE(net->Forward(Input(batch), logits.data()).ok());
    ASSERT_TRUE(sparse_net->Forward(sparse_input, sparse_logits.data()).ok());
    EXPECT_EQ(logits, sparse_logits);

    ReferenceValues values;
    values.rows.emplace_back(rows_.begin(), rows_.end());
    for (size_t t = tables_.size(); t < dense_.size(); ++t)
      values.dense.emplace_back(dense_[t].begin(), dense_[t].end());
    const ReferenceModel reference(shape_);
    const Dropout dropout(shape_.dropout, kSeed, 2);
    ExpectClose(logits, reference.Logits(batch, row_index, values, nullptr), 1e-6, "logits");
    const ReferenceValues expected =
        reference.FiniteDifferences(batch, row_index, values, &dropout);

    const auto got = Train(net, batch);
    const auto sparse = Empty(tables_.size());
    ASSERT_TRUE(sparse_net->TrainStep(sparse_input, kSeed, 2, &sparse->view).ok());
    EXPECT_EQ(got->view.loss_sum, sparse->view.loss_sum);
    EXPECT_EQ(got->view.weight_sum, sparse->view.weight_sum);
    for (size_t t = 0; t < tables_.size(); ++t) {
      std::vector<double> of_table;
      std::vector<float> of_rows;
      for (size_t i = 0; i < dense_[t].size(); ++i) {
        of_table.push_back(expected.rows[0][RowPlace(t, i)]);
        of_rows.push_back(sparse->rows[RowPlace(t, i)]);
      }
      ExpectClose(got->dense[t], of_table, 1e-6, "table " + std::to_string(t));
      EXPECT_EQ(got->dense[t], of_rows) << "table " << t;
    }
    for (size_t t = tables_.size(); t < dense_.size(); ++t) {
      ExpectClose(got->dense[t], expected.dense[t - tables_.size()], 1e-6,
                  "tensor " + std::to_string(t));
      EXPECT_EQ(got->dense[t], sparse->dense[t - tables_.size()]) << "tensor " << t;
    }
  }

  void ExpectAgrees(const WideDeepShape& shape, size_t n) {
    SetShape(shape);
    for (const int threads : {1, 3}) {
      const auto net = Net(threads);
      for (const size_t chunk : {0, 4}) {
        SCOPED_TRACE(testing::Message() << "threads " << threads << " chunk " << chunk);
        Batch batch = MakeBatch(n);
        batch.chunk = chunk;
        batch.first_position = chunk == 0 ? 0 : 6;
        ExpectStepIsRight(net.get(), batch, threads);
      }
    }
  }

  float Value() { return static_cast<float>(static_cast<double>(random_() >> 11) * 0x1p-52 - 1.0); }
  std::vector<float> Values(size_t n) {
    std::vector<float> values(n);
    for (float& v : values) v = Value() * 0.5f;
    return values;
  }

  WideDeepShape shape_;
  std::mt19937_64 random_{1};
  std::vector<DenseEmbeddingNet::Table> tables_;
  std::vector<std::vector<float>> dense_;  // the tables, then the network's tensors
  std::vector<float> rows_;                // [kKeys][row_dim]
};

TEST_F(DenseEmbeddingTest, AgreesWithTheReferenceAndWithRowsOfASparseTable) {
  ExpectAgrees(SmallShape(), 13);
}

TEST_F(DenseEmbeddingTest, AgreesWithDropout) {
  WideDeepShape shape = SmallShape();
  shape.dropout = 0.4f;
  ExpectAgrees(shape, 13);
}

TEST_F(DenseEmbeddingTest, AgreesWithoutADeepPart) {
  WideDeepShape shape = SmallShape();
  shape.hidden.clear();
  shape.embedding_dims = {0};
  ExpectAgrees(shape, 9);
}

TEST_F(DenseEmbeddingTest, AgreesWithoutAWidePart) {
  WideDeepShape shape = SmallShape();
  shape.wide_numeric.clear();
  shape.wide_bias = false;
  shape.wide_columns = {false};
  shape.slots[1].deep = true;  // without any part it would have no rows
  ExpectAgrees(shape, 9);
}

TEST_F(DenseEmbeddingTest, AgreesOnOneExampleAndOnManyKeys) {
  ExpectAgrees(SmallShape(), 1);
  ExpectAgrees(SmallShape(), 300);
}

TEST_F(DenseEmbeddingTest, RowsOfEarlierBatchesHaveNoGradient) {
  const auto net = Net();
  const Batch first = MakeBatch(40);
  Batch second = MakeBatch(40);
  // Only the first key of each slot.
  for (uint64_t& key : second.keys) {
    for (const auto& [begin, end] : kSlotKeys) key = key >= begin && key < end ? begin : key;
  }
  Train(net.get(), first);
  const auto got = Train(net.get(), second);
  std::vector<size_t> moved;
  for (size_t key = 0; key < 15; ++key) {
    const float* const row = got->dense[0].data() + key * 3;
    ASSERT_TRUE(std::isfinite(row[0] + row[1] + row[2]));
    if (row[0] != 0 || row[1] != 0 || row[2] != 0) moved.push_back(key);
  }
  EXPECT_THAT(moved, ElementsAre(0, 5, 12));
  ExpectStepIsRight(net.get(), first, 1);
}

TEST_F(DenseEmbeddingTest, NoExamplesGiveZeroGradients) {
  const auto net = Net();
  Train(net.get(), MakeBatch(10));
  const auto got = Train(net.get(), MakeBatch(0));
  EXPECT_EQ(got->view.weight_sum, 0);
  for (const auto& tensor : got->dense) EXPECT_EQ(tensor, std::vector<float>(tensor.size(), 0.0f));
}

TEST_F(DenseEmbeddingTest, TablesAreReadyWhenTheirGradientsAreFinal) {
  const auto net = Net();
  const Batch batch = MakeBatch(10);
  const auto expected = Train(net.get(), batch);
  const auto got = Empty(0);
  std::vector<size_t> ready;
  got->view.ready = [&](size_t i) {
    ready.push_back(i);
    EXPECT_EQ(got->dense[i], expected->dense[i]) << i;
    EXPECT_EQ(got->view.weight_sum, expected->view.weight_sum);
  };
  ASSERT_TRUE(net->TrainStep(Input(batch), kSeed, 2, &got->view).ok());
  ASSERT_GE(ready.size(), 2u);
  EXPECT_EQ(ready[ready.size() - 2], 1u);
  EXPECT_EQ(ready.back(), 0u);
  for (size_t i = 0; i + 2 < ready.size(); ++i) EXPECT_GE(ready[i], 2u);
  // The caller's object is as it was.
  EXPECT_EQ(got->view.dense.size(), dense_.size());
  EXPECT_THAT(got->view.rows, ElementsAre(got->rows.data()));
}

TEST_F(DenseEmbeddingTest, RefusesAKeyWithoutRowAndGoesOn) {
  const auto net = Net();
  Batch batch = MakeBatch(10);
  const Batch good = batch;
  batch.keys.back() = kKeys;
  std::vector<float> logits(batch.n);
  const absl::Status status = net->Forward(Input(batch), logits.data());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("21"));
  ExpectStepIsRight(net.get(), good, 1);
}

TEST_F(DenseEmbeddingTest, RefusesOtherTensors) {
  const auto net = Net();
  const Batch batch = MakeBatch(3);
  std::vector<float> logits(3);
  NetInput input = Input(batch);
  input.dense.pop_back();
  EXPECT_EQ(net->Forward(input, logits.data()).code(), absl::StatusCode::kInvalidArgument);
  input.dense.resize(1);
  EXPECT_EQ(net->Forward(input, logits.data()).code(), absl::StatusCode::kInvalidArgument);
  const auto g = Empty(1);
  EXPECT_EQ(net->TrainStep(Input(batch), kSeed, 2, &g->view).code(),
            absl::StatusCode::kInvalidArgument);
}

// A network whose step overflows.
class SkippingNet : public DenseNet {
 public:
  absl::Status TrainStep(const NetInput&, uint64_t, uint32_t, NetGradients* gradients) override {
    gradients->skipped = true;
    return absl::OkStatus();
  }
  absl::Status Forward(const NetInput&, float*) override { return absl::OkStatus(); }
  absl::StatusOr<std::string> SaveState() const override { return state_; }
  absl::Status RestoreState(const std::string& state) override {
    state_ = state;
    return absl::OkStatus();
  }
  std::string Describe() const override { return "skips"; }

 private:
  std::string state_;
};

TEST_F(DenseEmbeddingTest, SkippedStepsAndTheNetworksStatePassThrough) {
  DenseEmbeddingNet net(std::make_unique<SkippingNet>(), tables_, shape_.row_dim(0), 1);
  const auto g = Empty(0);
  bool ready = false;
  g->view.ready = [&](size_t) { ready = true; };
  ASSERT_TRUE(net.TrainStep(Input(MakeBatch(3)), kSeed, 2, &g->view).ok());
  EXPECT_TRUE(g->view.skipped);
  EXPECT_FALSE(ready);
  EXPECT_TRUE(std::isnan(g->dense[0][0]));
  EXPECT_THAT(*net.SaveState(), IsEmpty());
  ASSERT_TRUE(net.RestoreState("scale").ok());
  EXPECT_EQ(*net.SaveState(), "scale");
  EXPECT_EQ(net.Describe(), "skips");
}

}  // namespace
}  // namespace sluice
