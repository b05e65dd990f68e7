// Checks weight gradients against plain loops in double.
#include "model/net/weight_gradients.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "model/net/parallel.h"

namespace sluice {
namespace {

struct Operands {
  std::vector<float> values;
  std::vector<uint16_t> half;

  Operands(size_t n, std::mt19937_64* random) : values(n), half(n) {
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (size_t i = 0; i < n; ++i) values[i] = uniform(*random);
  }
  // Rounds to values that bf16 can hold.
  void Round() {
    BestLayerLoops().to_bf16(values.data(), half.data(), values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      const uint32_t bits = static_cast<uint32_t>(half[i]) << 16;
      std::memcpy(&values[i], &bits, sizeof bits);
    }
  }
  const void* data(bool bf16) const {
    return bf16 ? static_cast<const void*>(half.data()) : values.data();
  }
};

// The gradients of each layer [in][out] of one step.
std::vector<std::vector<float>> Compute(WeightGradients* gradients,
                                        const std::vector<size_t>& widths, bool bf16, size_t rows,
                                        const std::vector<RowPiece>& pieces, double scale,
                                        const std::vector<Operands>& levels) {
  std::vector<std::vector<float>> out;
  std::vector<WeightGradients::Layer> layers;
  for (size_t l = 0; l + 1 < widths.size(); ++l)
    out.emplace_back(widths[l] * widths[l + 1], std::nanf(""));
  for (size_t l = 0; l + 1 < widths.size(); ++l)
    layers.push_back({levels[2 * l].data(bf16), levels[2 * l + 1].data(bf16), out[l].data()});
  std::vector<std::atomic<int>> done(layers.size());
  EXPECT_TRUE(gradients->Run(rows, pieces, scale, layers, {}, [&](size_t l) { ++done[l]; }).ok());
  for (const auto& times : done) EXPECT_EQ(times, 1) << "each layer is reported once";
  return out;
}

// For each layer its activations [rows][in], then its gradients [rows][out].
std::vector<Operands> MakeLevels(const std::vector<size_t>& widths, bool bf16, size_t rows) {
  std::mt19937_64 random(rows);
  std::vector<Operands> levels;
  for (size_t l = 0; l + 1 < widths.size(); ++l) {
    levels.emplace_back(rows * widths[l], &random);
    levels.emplace_back(rows * widths[l + 1], &random);
  }
  for (Operands& o : levels) {
    if (bf16) o.Round();
  }
  return levels;
}

// The same in parts, which have `counts` pieces each.
std::vector<std::vector<float>> ComputeInParts(WeightGradients* gradients,
                                               const std::vector<size_t>& widths, bool bf16,
                                               const std::vector<RowPiece>& pieces,
                                               const std::vector<size_t>& counts, double scale,
                                               const std::vector<Operands>& levels) {
  std::vector<std::vector<float>> out;
  for (size_t l = 0; l + 1 < widths.size(); ++l)
    out.emplace_back(widths[l] * widths[l + 1], std::nanf(""));
  const size_t bytes = bf16 ? sizeof(uint16_t) : sizeof(float);
  size_t piece = 0;
  for (const size_t count : counts) {
    const size_t begin = pieces[piece].begin, rows = pieces[piece + count - 1].end - begin;
    std::vector<RowPiece> own;  // counted from the part's first row
    for (size_t p = piece; p < piece + count; ++p)
      own.push_back({pieces[p].begin - begin, pieces[p].end - begin});
    std::vector<WeightGradients::Layer> layers;
    for (size_t l = 0; l + 1 < widths.size(); ++l) {
      auto from = [&](size_t level, size_t width) {
        return static_cast<const char*>(levels[level].data(bf16)) + begin * width * bytes;
      };
      layers.push_back({from(2 * l, widths[l]), from(2 * l + 1, widths[l + 1]), out[l].data()});
    }
    const SumPart part = {piece == 0, piece + count == pieces.size()};
    std::atomic<size_t> done{0};
    EXPECT_TRUE(gradients->Run(rows, own, scale, layers, part, [&](size_t) { ++done; }).ok());
    EXPECT_EQ(done, part.last ? layers.size() : 0);
    piece += count;
  }
  return out;
}

void ExpectSums(const std::vector<size_t>& widths, bool bf16, size_t rows,
                const std::vector<RowPiece>& pieces, double scale) {
  OneThreadGuard guard;
  const std::vector<Operands> levels = MakeLevels(widths, bf16, rows);
  WeightGradients gradients(widths, bf16, 2);
  const auto out = Compute(&gradients, widths, bf16, rows, pieces, scale, levels);
  for (size_t l = 0; l < out.size(); ++l) {
    const size_t in = widths[l], units = widths[l + 1];
    for (size_t k = 0; k < in; ++k) {
      for (size_t u = 0; u < units; ++u) {
        double sum = 0;
        for (size_t r = 0; r < rows; ++r) {
          sum += static_cast<double>(levels[2 * l].values[r * in + k]) *
                 levels[2 * l + 1].values[r * units + u];
        }
        const double got = out[l][k * units + u], want = scale * sum;
        ASSERT_TRUE(std::isfinite(got) && std::abs(got - want) <= scale * 1e-6 * (rows + 10))
            << "layer " << l << ", " << k << " x " << u << " of " << rows << " rows: " << got
            << " instead of " << want;
      }
    }
  }
}

// A block has 144 inputs, and a product has 256 rows.
TEST(WeightGradientsTest, AgreeWithPlainLoops) {
  for (const bool bf16 : {false, true}) {
    for (const size_t rows : {1, 7, 64, 255, 257, 600}) {
      ExpectSums({1, 1}, bf16, rows, {}, 1);
      ExpectSums({13, 5, 3}, bf16, rows, {}, 1);
    }
    for (const size_t inputs : {143, 144, 145, 300}) ExpectSums({inputs, 17}, bf16, 70, {}, 1);
  }
}

TEST(WeightGradientsTest, PiecesAreSummedAndScaled) {
  for (const bool bf16 : {false, true}) {
    ExpectSums({9, 4, 11}, bf16, 3, {{0, 1}, {1, 2}, {2, 3}}, 0.5);
    ExpectSums({150, 6}, bf16, 700, {{0, 512}, {512, 700}}, 1.0 / 700);
    // One piece, and odd and even numbers of them.
    for (size_t pieces : {1, 3, 4, 5}) {
      std::vector<RowPiece> cuts;
      for (size_t p = 0; p < pieces; ++p) cuts.push_back({p * 300, (p + 1) * 300});
      ExpectSums({20, 6}, bf16, pieces * 300, cuts, 1.0 / 900);
    }
  }
}

TEST(WeightGradientsTest, LayersAreReportedFromTheLastOne) {
  OneThreadGuard guard;
  const std::vector<size_t> widths = {310, 150, 20, 8};
  const std::vector<Operands> levels = MakeLevels(widths, false, 30);
  WeightGradients gradients(widths, false, 1);
  std::vector<std::vector<float>> out;
  std::vector<WeightGradients::Layer> layers;
  for (size_t l = 0; l < 3; ++l) {
    out.emplace_back(widths[l] * widths[l + 1]);
    layers.push_back({levels[2 * l].data(false), levels[2 * l + 1].data(false), out[l].data()});
  }
  std::vector<size_t> done;
  ASSERT_TRUE(gradients.Run(30, {}, 1, layers, {}, [&](size_t l) { done.push_back(l); }).ok());
  EXPECT_EQ(done, std::vector<size_t>({2, 1, 0}));
}

TEST(WeightGradientsTest, SameBitsWithAnyNumberOfThreadsAndInEveryStep) {
  OneThreadGuard guard;
  const std::vector<size_t> widths = {310, 20, 8};
  const std::vector<RowPiece> pieces = {{0, 100}, {100, 300}};
  const std::vector<Operands> levels = MakeLevels(widths, false, 300);
  WeightGradients one(widths, false, 1), three(widths, false, 3);
  for (const auto& cut : {std::vector<RowPiece>{}, pieces}) {
    const auto expected = Compute(&one, widths, false, 300, cut, 1, levels);
    EXPECT_EQ(Compute(&three, widths, false, 300, cut, 1, levels), expected);
    Compute(&three, widths, false, 200, {}, 1, levels);
    EXPECT_EQ(Compute(&three, widths, false, 300, cut, 1, levels), expected);
  }
}

// A sum over parts of a batch, as passes make them. Pieces are added in pairs, so the parts have
// even and odd numbers of them.
TEST(WeightGradientsTest, PartsHaveTheBitsOfTheWhole) {
  OneThreadGuard guard;
  const std::vector<size_t> widths = {150, 20, 6};
  const std::vector<size_t> ends = {40, 90, 100, 130, 160, 300};  // of the pieces
  for (const bool bf16 : {false, true}) {
    const std::vector<Operands> levels = MakeLevels(widths, bf16, ends.back());
    std::vector<RowPiece> all;
    for (size_t end : ends) all.push_back({all.empty() ? 0 : all.back().end, end});
    WeightGradients gradients(widths, bf16, 2);
    const auto whole = Compute(&gradients, widths, bf16, ends.back(), all, 1.0 / 3, levels);
    for (const std::vector<size_t>& counts :
         {std::vector<size_t>{3, 2, 1}, {1, 1, 4}, {2, 1, 3}, {1, 3, 2}, {4, 2}, {1, 5}}) {
      EXPECT_EQ(ComputeInParts(&gradients, widths, bf16, all, counts, 1.0 / 3, levels), whole);
    }
  }
}

}  // namespace
}  // namespace sluice
