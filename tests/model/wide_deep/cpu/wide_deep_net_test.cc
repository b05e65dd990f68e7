#include "model/wide_deep/cpu/wide_deep_net.h"

#include <malloc.h>

#include <array>
#include <cmath>
#include <cstring>
#include <iostream>

#include "gmock/gmock.h"
#include "tests/model/wide_deep/net_fixture.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSeed = 5;

// Compares logits, loss and every gradient with the reference, with and without cuts, on 1 and 3
// threads.
void ExpectAgreesWithReference(const WideDeepShape& shape, size_t n, bool zero_weights = false) {
  NetCase c(shape, 11);
  TestStep step = c.Step(n);
  if (zero_weights) step.batch.weight.assign(n, 0.0f);
  const ReferenceModel reference(shape);
  const ReferenceValues values = c.Reference();
  const Dropout dropout(shape.dropout, kSeed, 2);
  const double loss = reference.Loss(step.batch, step.row_index, values, &dropout);
  const ReferenceValues expected =
      reference.FiniteDifferences(step.batch, step.row_index, values, &dropout);
  for (int threads : {1, 3}) {
    for (size_t chunk : {0, 4}) {
      SCOPED_TRACE(testing::Message() << "threads " << threads << " chunk " << chunk);
      step.batch.chunk = chunk;
      step.batch.first_position = chunk == 0 ? 0 : 6;
      auto net = c.Net(threads);
      ExpectClose(c.Logits(net.get(), step),
                  reference.Logits(step.batch, step.row_index, values, nullptr), 1e-6, "logits");
      const OwnedGradients got = Train(c, net.get(), step, kSeed, 2);
      const double weight = got.view.weight_sum;
      EXPECT_NEAR(weight > 0 ? got.view.loss_sum / weight : got.view.loss_sum, loss, 1e-6);
      ExpectClose(got.rows, expected.rows, 1e-6, "rows");
      for (size_t t = 0; t < got.dense.size(); ++t) {
        ExpectClose(got.dense[t], expected.dense[t], 1e-6, "dense " + std::to_string(t));
      }
    }
  }
}

TEST(WideDeepNetTest, WholeModelAgreesWithFiniteDifferences) {
  ExpectAgreesWithReference(SmallShape(), 13);
}

TEST(WideDeepNetTest, DropoutAgreesWithFiniteDifferences) {
  WideDeepShape shape = SmallShape();
  shape.dropout = 0.4f;
  ExpectAgreesWithReference(shape, 13);
}

TEST(WideDeepNetTest, WeightsOfKeysAgreeWithFiniteDifferences) {
  WideDeepShape shape = SmallShape();
  shape.slots[0].weighted = true;  // summed
  shape.slots[2].weighted = true;  // the mean
  ExpectAgreesWithReference(shape, 13);
}

TEST(WideDeepNetTest, WeightsOfOneHaveTheBitsOfNone) {
  WideDeepShape weighted_shape = SmallShape();
  weighted_shape.slots[0].weighted = weighted_shape.slots[1].weighted = true;
  weighted_shape.slots[3].weighted = true;
  NetCase plain(SmallShape(), 11), weighted(weighted_shape, 11);
  TestStep step = plain.Step(13), same = step;
  same.batch.key_weights.assign(step.batch.keys.size(), 1.0f);
  auto plain_net = plain.Net(), weighted_net = weighted.Net();
  EXPECT_EQ(plain.Logits(plain_net.get(), step), plain.Logits(weighted_net.get(), same));
  const OwnedGradients a = Train(plain, plain_net.get(), step, kSeed, 2);
  const OwnedGradients b = Train(plain, weighted_net.get(), same, kSeed, 2);
  EXPECT_EQ(a.rows, b.rows);
  EXPECT_EQ(a.dense, b.dense);
}

TEST(WideDeepNetTest, SeveralTablesAgreeWithFiniteDifferences) {
  WideDeepShape shape = ShapeOfSeveralTables();
  shape.dropout = 0.3f;
  ExpectAgreesWithReference(shape, 13);
  ExpectAgreesWithReference(shape, 70);
}

TEST(WideDeepNetTest, SeveralTablesWithoutAWidePartAgreeWithFiniteDifferences) {
  WideDeepShape shape = ShapeOfSeveralTables();
  shape.wide_columns.assign(4, false);
  ExpectAgreesWithReference(shape, 13);
}

TEST(WideDeepNetTest, SeveralTablesWithoutADeepPartAgreeWithFiniteDifferences) {
  WideDeepShape shape = ShapeOfSeveralTables();
  shape.hidden.clear();
  shape.embedding_dims.assign(4, 0);
  shape.wide_columns[2] = shape.slots[4].wide = true;
  ExpectAgreesWithReference(shape, 13);
}

TEST(WideDeepNetTest, ATableWithoutEmbeddingsBesideOthersAgreesWithFiniteDifferences) {
  WideDeepShape shape = ShapeOfSeveralTables();
  for (WideDeepShape::Slot& slot : shape.slots) slot.deep &= slot.table != 2;
  shape.embedding_dims[2] = 0;
  shape.wide_columns[2] = shape.slots[4].wide = true;
  ExpectAgreesWithReference(shape, 13);
}

// The rows of SmallShape's table, where those of its last two slots are in a table of their own.
TEST(WideDeepNetTest, RowsInTwoTablesHaveTheBitsOfRowsInOne) {
  constexpr uint32_t kFirst = 25, kRows = 60;  // rows of the first two slots, and all
  WideDeepShape shape = WideShape({100, 50}, 8);
  shape.dropout = 0.2f;
  NetCase whole(shape, kRows);
  shape.embedding_dims = {8, 8};
  shape.wide_columns = {true, true};
  shape.slots[2].table = shape.slots[3].table = 1;
  NetCase split(shape, kRows);
  split.dense() = whole.dense();
  const size_t dim = shape.row_dim(0), begin = kFirst * dim;
  split.rows(0) = whole.rows();
  std::copy(whole.rows().begin() + begin, whole.rows().end(), split.rows(1).begin());
  TestStep one = whole.Step(200), two = one;
  for (size_t cell = 0; cell < 200 * 4; ++cell) {
    const bool second = cell % 4 >= 2;
    for (uint32_t k = one.batch.key_offsets[cell]; k < one.batch.key_offsets[cell + 1]; ++k) {
      two.row_index[k] %= second ? kRows - kFirst : kFirst;
      one.row_index[k] = two.row_index[k] + (second ? kFirst : 0);
    }
  }
  for (const size_t chunk : {0, 32}) {
    for (const int threads : {1, 3}) {
      for (const size_t pass : {0, 64}) {
        SCOPED_TRACE(testing::Message() << chunk << " " << threads << " " << pass);
        one.batch.chunk = two.batch.chunk = chunk;
        auto of_one = whole.Net(threads, 16, pass), of_two = split.Net(threads, 16, pass);
        EXPECT_EQ(whole.Logits(of_one.get(), one), split.Logits(of_two.get(), two));
        const OwnedGradients expected = Train(whole, of_one.get(), one),
                             got = Train(split, of_two.get(), two);
        EXPECT_EQ(got.dense, expected.dense);
        EXPECT_EQ(got.view.loss_sum, expected.view.loss_sum);
        std::vector<float> rows(got.rows[0].begin(), got.rows[0].begin() + begin);
        rows.insert(rows.end(), got.rows[1].begin(), got.rows[1].end() - begin);
        EXPECT_EQ(rows, expected.rows[0]);
      }
    }
  }
}

TEST(WideDeepNetTest, ATableWithoutKeysInTheBatchHasNoRows) {
  const WideDeepShape shape = ShapeOfSeveralTables();
  NetCase c(shape, 11);
  TestStep step = c.Step(13);
  // All keys of the slots of table 2 leave the batch.
  TestStep without = step;
  without.row_index.clear();
  without.batch.keys.clear(), without.batch.key_weights.clear();
  without.batch.key_offsets = {0};
  for (size_t cell = 0; cell < 13 * shape.slots.size(); ++cell) {
    for (uint32_t k = step.batch.key_offsets[cell]; k < step.batch.key_offsets[cell + 1]; ++k) {
      if (shape.slots[cell % shape.slots.size()].table == 2) continue;
      without.row_index.push_back(step.row_index[k]);
      without.batch.keys.push_back(step.batch.keys[k]);
      without.batch.key_weights.push_back(step.batch.key_weights[k]);
    }
    without.batch.key_offsets.push_back(without.batch.keys.size());
  }
  for (const size_t chunk : {0, 4}) {
    without.batch.chunk = chunk;
    const auto net = c.Net(3);
    const OwnedGradients expected = Train(c, net.get(), without);
    NetInput input = c.Input(without);
    input.rows[2] = {};
    OwnedGradients got(c, 11);
    got.view.rows[2] = nullptr;
    ASSERT_TRUE(net->TrainStep(input, kSeed, 0, &got.view).ok());
    EXPECT_EQ(got.dense, expected.dense);
    for (const size_t t : {0, 1, 3}) EXPECT_EQ(got.rows[t], expected.rows[t]) << t;
    EXPECT_EQ(expected.rows[2], std::vector<float>(expected.rows[2].size(), 0.0f));
    std::vector<float> logits(13);
    ASSERT_TRUE(net->Forward(input, logits.data()).ok());
    EXPECT_EQ(logits, c.Logits(net.get(), without));
  }
}

TEST(WideDeepNetTest, BatchLargerThanReservedAndThanATile) {
  WideDeepShape shape = SmallShape();
  shape.hidden = {4};
  ExpectAgreesWithReference(shape, 150);
}

TEST(WideDeepNetTest, LayersWiderThanABlock) {
  WideDeepShape shape = SmallShape();
  shape.hidden = {150, 6};
  shape.slots.resize(1);
  ExpectAgreesWithReference(shape, 5);
}

TEST(WideDeepNetTest, SumsOfMoreRowsThanOneProduct) {
  WideDeepShape shape = SmallShape();
  shape.hidden = {5, 4};
  ExpectAgreesWithReference(shape, 600);
}

TEST(WideDeepNetTest, Bf16IsCloseToF32InTrainingAndEqualInForward) {
  WideDeepShape shape = WideShape({40, 30}, 6);
  NetCase exact(shape, 50);
  shape.bf16 = true;
  NetCase rounded(shape, 50);  // the same seed: the same values
  for (const size_t chunk : {0, 16}) {
    TestStep step = exact.Step(100);
    step.batch.chunk = chunk;
    auto f32 = exact.Net(), bf16 = rounded.Net(2);
    const OwnedGradients a = Train(exact, f32.get(), step), b = Train(rounded, bf16.get(), step);
    EXPECT_NEAR(a.view.loss_sum, b.view.loss_sum, 0.01 * a.view.loss_sum);
    ExpectClose(b.rows, a.rows, 0.01, "rows");
    for (size_t t = 0; t < a.dense.size(); ++t) ExpectClose(b.dense[t], a.dense[t], 0.01, "dense");
    EXPECT_NE(a.dense[0], b.dense[0]) << "bf16 is not in use";
    EXPECT_EQ(exact.Logits(f32.get(), step), rounded.Logits(bf16.get(), step));
  }
}

TEST(WideDeepNetTest, WideOnly) {
  WideDeepShape shape = SmallShape();
  shape.hidden.clear();
  shape.embedding_dims = {0};
  ExpectAgreesWithReference(shape, 9);
}

TEST(WideDeepNetTest, DeepOnly) {
  WideDeepShape shape = SmallShape();
  shape.wide_numeric.clear();
  shape.wide_bias = false;
  shape.wide_columns = {false};
  ExpectAgreesWithReference(shape, 9);
}

TEST(WideDeepNetTest, NumbersOnly) {
  WideDeepShape shape = SmallShape();
  shape.slots.clear();
  shape.wide_columns = {false};
  shape.embedding_dims = {0};
  ExpectAgreesWithReference(shape, 9);
}

TEST(WideDeepNetTest, KeysWithoutATableAreIgnored) {
  WideDeepShape shape = SmallShape();
  shape.wide_columns = {false};
  shape.embedding_dims = {0};
  ExpectAgreesWithReference(shape, 9);
}

TEST(WideDeepNetTest, OneExample) { ExpectAgreesWithReference(SmallShape(), 1); }

TEST(WideDeepNetTest, ZeroWeightsGiveZeroGradients) {
  ExpectAgreesWithReference(SmallShape(), 9, true);
  NetCase c(SmallShape(), 11);
  TestStep step = c.Step(9);
  step.batch.weight.assign(9, 0.0f);
  const OwnedGradients got = Train(c, c.Net().get(), step);
  EXPECT_EQ(got.view.weight_sum, 0);
  EXPECT_EQ(got.rows[0], std::vector<float>(got.rows[0].size(), 0.0f));
}

TEST(WideDeepNetTest, NoExamplesGiveZeroGradients) {
  NetCase c(SmallShape(), 11);
  const TestStep step = c.Step(0);
  auto net = c.Net();
  const OwnedGradients got = Train(c, net.get(), step);
  EXPECT_EQ(got.view.weight_sum, 0);
  EXPECT_EQ(got.view.loss_sum, 0);
  for (const auto& tensor : got.dense) EXPECT_EQ(tensor, std::vector<float>(tensor.size(), 0.0f));
  EXPECT_EQ(got.rows[0], std::vector<float>(got.rows[0].size(), 0.0f));
  EXPECT_TRUE(c.Logits(net.get(), step).empty());
}

TEST(WideDeepNetTest, NanInAWeightReachesTheLoss) {
  NetCase c(SmallShape(), 11);
  const TestStep step = c.Step(9);
  c.dense()[0][0] = std::nanf("");
  c.dense()[1][0] = std::nanf("");
  EXPECT_TRUE(std::isnan(Train(c, c.Net().get(), step).view.loss_sum));
}

// --------------------------------------------------------------------- the same bits in any batch

// Copies examples [begin, begin + n).
TestStep Cut(const TestStep& from, size_t begin, size_t n) {
  TestStep step;
  step.batch.Reset(from.batch.num_numeric, from.batch.num_slots);
  for (size_t i = begin; i < begin + n; ++i)
    EXPECT_TRUE(step.batch.Append(from.batch, i, from.batch.example_id[i]).ok());
  const size_t first_key = from.batch.key_offsets[begin * from.batch.num_slots];
  step.row_index.assign(from.row_index.begin() + first_key,
                        from.row_index.begin() + first_key + step.batch.keys.size());
  return step;
}

void ExpectSameLogitsInAnyBatch(const WideDeepShape& shape, size_t n) {
  NetCase c(shape, 40);
  const TestStep all = c.Step(n);
  const std::vector<float> expected = c.Logits(c.Net(1, n).get(), all);
  for (int threads : {1, 2}) {
    auto net = c.Net(threads, 8);
    for (size_t size : {1, 7, 64, 100}) {
      for (size_t begin = 0; begin < n; begin += size + (size == 1 ? 12 : 0)) {
        const size_t count = std::min(size, n - begin);
        const std::vector<float> got = c.Logits(net.get(), Cut(all, begin, count));
        ASSERT_EQ(std::memcmp(got.data(), expected.data() + begin, count * sizeof(float)), 0)
            << "batch of " << count << " from " << begin << " on " << threads << " threads";
      }
    }
  }
}

TEST(WideDeepNetTest, LogitHasTheSameBitsInAnyBatchSmall) {
  ExpectSameLogitsInAnyBatch(SmallShape(), 200);
}
TEST(WideDeepNetTest, LogitHasTheSameBitsInAnyBatchOdd) {
  ExpectSameLogitsInAnyBatch(WideShape({129, 65, 33}, 13), 333);
}
TEST(WideDeepNetTest, LogitHasTheSameBitsInAnyBatchEven) {
  ExpectSameLogitsInAnyBatch(WideShape({256, 128}, 16), 512);
}
TEST(WideDeepNetTest, LogitHasTheSameBitsInAnyBatchOf2048) {
  ExpectSameLogitsInAnyBatch(WideShape({100, 50}, 8), 2048);
}

TEST(WideDeepNetTest, LossWithDropoutHasTheSameBitsAloneAndInABatch) {
  WideDeepShape shape = WideShape({100, 50}, 8);
  shape.dropout = 0.3f;
  NetCase c(shape, 40);
  const TestStep all = c.Step(150);
  auto net = c.Net();
  double sum = 0;
  for (size_t i = 0; i < 150; ++i) sum += Train(c, net.get(), Cut(all, i, 1)).view.loss_sum;
  EXPECT_EQ(sum, Train(c, net.get(), all).view.loss_sum);
}

// --------------------------------------------------------- any split of a global batch adds up to
// the same

double Norm(const std::vector<double>& v) {
  double sum = 0;
  for (double x : v) sum += x * x;
  return std::sqrt(sum);
}

// Rows, then all dense tensors, of the merged gradient of `parts` workers.
std::vector<double> MergedGradient(const NetCase& c, const TestStep& all, size_t parts,
                                   size_t chunk) {
  std::vector<double> merged;
  double weight = 0;
  const size_t size = all.batch.n / parts;
  for (size_t p = 0; p < parts; ++p) {
    TestStep step = Cut(all, p * size, size);
    step.batch.first_position = p * size;
    step.batch.chunk = chunk;
    const OwnedGradients g = Train(c, c.Net(1 + p % 2).get(), step);
    std::vector<float> flat;
    for (const auto* tables : {&g.rows, &g.dense}) {
      for (const auto& values : *tables) flat.insert(flat.end(), values.begin(), values.end());
    }
    merged.resize(flat.size());
    for (size_t j = 0; j < flat.size(); ++j) merged[j] += g.view.weight_sum * flat[j];
    weight += g.view.weight_sum;
  }
  for (double& x : merged) x /= weight;
  return merged;
}

TEST(WideDeepNetTest, WorkersAddUpToOneWorker) {
  WideDeepShape shape = WideShape({100, 50}, 8);
  shape.dropout = 0.2f;
  NetCase c(shape, 60);
  const TestStep all = c.Step(256);
  const std::vector<double> one = MergedGradient(c, all, 1, 32);
  for (size_t parts : {2, 4, 8}) {
    std::vector<double> difference = MergedGradient(c, all, parts, 32);
    for (size_t j = 0; j < one.size(); ++j) difference[j] -= one[j];
    EXPECT_GT(Norm(one), 0.0);
    EXPECT_LE(Norm(difference), 1e-7 * Norm(one)) << parts << " workers";
  }
}

TEST(WideDeepNetTest, GradientHasTheSameBitsOnAnyNumberOfThreads) {
  for (const WideDeepShape& shape : {WideShape({100, 50}, 8), ShapeOfSeveralTables()}) {
    NetCase c(shape, 60);
    TestStep step = c.Step(200);
    for (size_t chunk : {0, 32}) {
      step.batch.chunk = chunk;
      const OwnedGradients one = Train(c, c.Net(1).get(), step),
                           four = Train(c, c.Net(4).get(), step);
      EXPECT_EQ(one.rows, four.rows);
      EXPECT_EQ(one.dense, four.dense);
      EXPECT_EQ(one.view.loss_sum, four.view.loss_sum);
    }
  }
}

// ------------------------------------------------------------------------------------- passes

void ExpectSameBits(const OwnedGradients& a, const OwnedGradients& b) {
  EXPECT_EQ(a.rows, b.rows);
  for (size_t t = 0; t < a.dense.size(); ++t) EXPECT_EQ(a.dense[t], b.dense[t]) << "tensor " << t;
  EXPECT_EQ(a.view.loss_sum, b.view.loss_sum);
  EXPECT_EQ(a.view.weight_sum, b.view.weight_sum);
}

TEST(WideDeepNetTest, PassesThatEndAtCutsAndTilesHaveTheBitsOfOnePass) {
  for (const bool bf16 : {false, true}) {
    WideDeepShape shape = bf16 ? WideShape({150, 50}, 8) : ShapeOfSeveralTables();
    shape.hidden = {150, 50};
    shape.dropout = 0.2f;
    shape.bf16 = bf16;
    NetCase c(shape, 60);
    // The tail of the last case is uneven, as the last step of an epoch.
    for (const auto& [n, pass, chunk, position] :
         std::vector<std::array<size_t, 4>>{{256, 64, 16, 0},
                                            {256, 128, 32, 256},
                                            {1024, 512, 300 - 44, 0},
                                            {400, 100, 16, 64},
                                            {450, 200, 48, 16},
                                            {203, 64, 64, 128}}) {
      TestStep step = c.Step(n);
      step.batch.chunk = chunk;
      step.batch.first_position = position;
      const OwnedGradients one = Train(c, c.Net().get(), step);
      for (const int threads : {1, 3}) {
        SCOPED_TRACE(testing::Message() << n << " in passes of " << pass);
        auto net = c.Net(threads, 16, pass);
        ExpectSameBits(Train(c, net.get(), step), one);
        ExpectSameBits(Train(c, net.get(), step), one);  // sums begin anew
      }
    }
  }
}

TEST(WideDeepNetTest, PassesThatEndElsewhereDifferByRoundings) {
  WideDeepShape shape = WideShape({100, 50}, 8);
  shape.dropout = 0.2f;
  NetCase c(shape, 60);
  for (const size_t chunk : {0, 1000, 48}) {
    TestStep step = c.Step(333);
    step.batch.chunk = chunk;
    step.batch.first_position = 20;
    const OwnedGradients one = Train(c, c.Net().get(), step),
                         passes = Train(c, c.Net(2, 16, 50).get(), step);
    EXPECT_EQ(passes.view.loss_sum, one.view.loss_sum);
    ExpectClose(passes.rows, one.rows, 1e-7, "rows");
    for (size_t t = 0; t < one.dense.size(); ++t)
      ExpectClose(passes.dense[t], one.dense[t], 1e-7, "dense " + std::to_string(t));
  }
}

TEST(WideDeepNetTest, PassesAgreeWithFiniteDifferences) {
  for (WideDeepShape shape : {SmallShape(), ShapeOfSeveralTables()}) {
    shape.dropout = 0.4f;
    NetCase c(shape, 11);
    const TestStep step = c.Step(13);
    const Dropout dropout(shape.dropout, kSeed, 2);
    const ReferenceModel reference(shape);
    const ReferenceValues expected =
        reference.FiniteDifferences(step.batch, step.row_index, c.Reference(), &dropout);
    const OwnedGradients got = Train(c, c.Net(1, 16, 4).get(), step, kSeed, 2);
    ExpectClose(got.rows, expected.rows, 1e-6, "rows");
    ExpectClose(got.dense, expected.dense, 1e-6, "dense");
  }
}

// Bytes that the allocator has handed out; 0 under sanitizers, which replace it.
size_t AllocatedBytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

TEST(WideDeepNetTest, ActivationsTakeTheMemoryOfOnePass) {
  if (AllocatedBytes() == 0) GTEST_SKIP() << "a sanitizer's allocator does not count";
  constexpr size_t kBatch = 4096;
  NetCase c(WideShape({256, 256}, 16), 60);
  TestStep step = c.Step(kBatch);
  step.batch.chunk = kBatch / 16;
  const auto bytes_of = [&](size_t pass) {
    const size_t before = AllocatedBytes();
    auto net = c.Net(1, pass == 0 ? kBatch : pass, pass);
    Train(c, net.get(), step);
    return AllocatedBytes() - before;
  };
  bytes_of(0);  // oneDNN keeps some memory for good
  const size_t whole = bytes_of(0), passes = bytes_of(kBatch / 8);
  std::cout << "a step of " << kBatch << " examples: " << (whole >> 10) << " KiB in one pass, "
            << (passes >> 10) << " KiB in 8 passes" << std::endl;
  // Activations and their gradients, of the inputs and two layers of 256 units.
  const size_t activations = kBatch * (c.shape().deep_inputs() + 2 * 256) * 2 * sizeof(float);
  EXPECT_GT(whole, activations);
  // What is added are the sums of all weights in double.
  EXPECT_LT(passes, activations / 8 + whole - activations + (2 << 20));
}

TEST(WideDeepNetTest, GradientsAreReadyOnceAndOnlyInTheLastPass) {
  NetCase c(WideShape({20, 10}, 8), 40);
  TestStep step = c.Step(200);
  step.batch.chunk = 16;
  const NetInput input = c.Input(step);
  const OwnedGradients one = Train(c, c.Net().get(), step);
  OwnedGradients got(c, input);
  std::vector<size_t> ready;
  got.view.ready = [&](size_t t) {
    ready.push_back(t);
    EXPECT_EQ(got.dense[t], one.dense[t]);
    EXPECT_EQ(got.view.weight_sum, one.view.weight_sum);
  };
  ASSERT_TRUE(c.Net(1, 16, 64)->TrainStep(input, kSeed, 0, &got.view).ok());
  EXPECT_THAT(ready, ::testing::UnorderedElementsAre(0, 2));
}

TEST(WideDeepNetTest, CutsFollowGlobalPositions) {
  // A batch from position 5 with chunk 8 is cut after 3 examples. Both pieces weigh 1, so that a
  // piece trained alone gives its f32 sum exactly, and the whole must be half of their sum in
  // double, to the bit.
  NetCase c(WideShape({20, 10}, 8), 40);
  TestStep all = c.Step(11);
  all.batch.weight = {0.25f,  0.25f,  0.5f,   0.125f, 0.125f, 0.125f,
                      0.125f, 0.125f, 0.125f, 0.125f, 0.125f};
  TestStep head = Cut(all, 0, 3), tail = Cut(all, 3, 8);
  all.batch.first_position = head.batch.first_position = 5;
  tail.batch.first_position = 8;
  all.batch.chunk = head.batch.chunk = tail.batch.chunk = 8;
  auto net = c.Net();
  const OwnedGradients whole = Train(c, net.get(), all), a = Train(c, net.get(), head),
                       b = Train(c, net.get(), tail);
  for (size_t t : {0, 2}) {  // the hidden layers' weights
    for (size_t j = 0; j < whole.dense[t].size(); ++j) {
      const double sum = static_cast<double>(a.dense[t][j]) + b.dense[t][j];
      EXPECT_EQ(whole.dense[t][j], static_cast<float>(sum / 2)) << t << " " << j;
    }
  }
}

// ------------------------------------------------------------------------------------------
// refusals

TEST(WideDeepNetTest, RefusesABatchWithOtherFeatures) {
  NetCase c(SmallShape(), 11);
  TestStep step = c.Step(3);
  step.batch.num_numeric = 2;
  std::vector<float> logits(3);
  EXPECT_THAT(std::string(c.Net()->Forward(c.Input(step), logits.data()).message()),
              HasSubstr("2 numbers"));
  step.batch.num_numeric = 3;
  NetInput input = c.Input(step);
  input.dense.pop_back();
  EXPECT_THAT(std::string(c.Net()->Forward(input, logits.data()).message()),
              HasSubstr("dense tensors"));
  input = c.Input(step);
  input.rows[0].values = nullptr;
  EXPECT_THAT(std::string(c.Net()->Forward(input, logits.data()).message()), HasSubstr("no rows"));
}

TEST(WideDeepNetTest, RefusesRowsOfOtherTables) {
  NetCase c(ShapeOfSeveralTables(), 11);
  const TestStep step = c.Step(3);
  std::vector<float> logits(3);
  NetInput input = c.Input(step);
  input.rows[2].values = nullptr;
  EXPECT_THAT(std::string(c.Net()->Forward(input, logits.data()).message()),
              HasSubstr("sparse table 2"));
  input = c.Input(step);
  input.rows.pop_back();
  EXPECT_THAT(std::string(c.Net()->Forward(input, logits.data()).message()),
              HasSubstr("3 sparse tables"));
  input = c.Input(step);
  OwnedGradients gradients(c, input);
  gradients.view.rows.pop_back();
  EXPECT_THAT(std::string(c.Net()->TrainStep(input, kSeed, 0, &gradients.view).message()),
              HasSubstr("gradients of rows"));
}

TEST(WideDeepNetTest, RefusesImpossibleShapes) {
  WideDeepShape shape = SmallShape();
  shape.dropout = 1.0f;
  EXPECT_THAT(std::string(WideDeepNet::Create(shape, 1, 8).status().message()),
              HasSubstr("dropout"));
  shape = SmallShape();
  shape.slots.clear();
  shape.deep_numeric.clear();
  EXPECT_EQ(WideDeepNet::Create(shape, 1, 8).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sluice
