// Checks the MLP's values against plain loops in double, and its gradients against their central
// differences.
#include "model/net/mlp.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "model/net/parallel.h"

namespace sluice {
namespace {

constexpr double kStep = 1e-6;

// One batch through one network: L = sum_i output_gradient[i] * f(input[i]).
class MlpCase {
 public:
  MlpCase(std::vector<size_t> widths, size_t rows, float dropout_rate = 0)
      : widths_(std::move(widths)), rows_(rows), dropout_(dropout_rate, 5, 2) {
    for (size_t l = 0; l + 1 < widths_.size(); ++l) {
      dense_.push_back(Numbers(widths_[l] * widths_[l + 1]));
      dense_.push_back(Numbers(widths_[l + 1]));
    }
    input_ = Numbers(rows * widths_[0]);
    output_gradient_ = Numbers(rows);
    for (size_t i = 0; i < rows; ++i) ids_.push_back(1000 + 7 * i);
  }

  // The results of the class under test.
  struct Result {
    std::vector<float> output, input_gradient;
    std::vector<std::vector<float>> dense;
  };
  Result Run(bool input_gradient, int threads, const std::vector<RowPiece>& pieces = {},
             double scale = 1, size_t tiles_at_once = 1) const {
    OneThreadGuard guard;
    auto mlp = Mlp::Create(widths_, input_gradient, /*bf16=*/false, threads);
    EXPECT_TRUE(mlp.ok()) << mlp.status();
    (*mlp)->Reserve(rows_);
    std::vector<const float*> weights;
    Result result;
    std::vector<float*> gradients;
    for (const auto& values : dense_) {
      weights.push_back(values.data());
      result.dense.emplace_back(values.size(), std::nanf(""));
    }
    for (auto& values : result.dense) gradients.push_back(values.data());
    (*mlp)->SetWeights(weights.data(), /*training=*/true);
    result.output.resize(rows_);
    for (size_t i = 0; i < rows_; ++i)
      std::copy_n(input_.data() + i * widths_[0], widths_[0], (*mlp)->input(i));
    const size_t step = tiles_at_once * Mlp::kTile;
    for (size_t at = 0; at < rows_; at += step) {
      const size_t n = std::min(step, rows_ - at);
      (*mlp)->Forward(0, at, n, dropout_, dropout_.active() ? ids_.data() + at : nullptr,
                      result.output.data() + at);
      (*mlp)->Backward(0, at, n, dropout_, output_gradient_.data() + at);
    }
    EXPECT_TRUE((*mlp)->Gradients(rows_, pieces, scale, {}, gradients.data(), nullptr).ok());
    if (!input_gradient) return result;
    for (size_t i = 0; i < rows_; ++i) {
      const float* from = (*mlp)->input_gradient(i);
      result.input_gradient.insert(result.input_gradient.end(), from, from + widths_[0]);
    }
    return result;
  }

  void Expect(const Result& result, double scale = 1) {
    for (size_t i = 0; i < rows_; ++i) ExpectNear(result.output[i], Output(i), "output", i);
    for (size_t i = 0; i < result.input_gradient.size(); ++i) {
      const size_t row = i / widths_[0];
      ExpectNear(result.input_gradient[i],
                 Slope(&input_[i], [&] { return output_gradient_[row] * Output(row); }), "input",
                 i);
    }
    for (size_t t = 0; t < dense_.size(); ++t) {
      for (size_t i = 0; i < dense_[t].size(); ++i) {
        const double slope = Slope(&dense_[t][i], [&] {
          double sum = 0;
          for (size_t row = 0; row < rows_; ++row) sum += output_gradient_[row] * Output(row);
          return sum;
        });
        ExpectNear(result.dense[t][i], scale * slope, t % 2 == 0 ? "weight" : "bias", i);
      }
    }
  }

 private:
  std::vector<float> Numbers(size_t n) {
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::vector<float> values(n);
    for (float& v : values) v = uniform(random_);
    return values;
  }

  static void ExpectNear(double got, double want, const char* what, size_t i) {
    ASSERT_TRUE(std::isfinite(got) && std::abs(got - want) <= 2e-5 * (1 + std::abs(want)))
        << what << " " << i << ": " << got << " instead of " << want;
  }

  // The value of `at` is moved in double: a parameter of the reference is value + moved_.
  template <typename Loss>
  double Slope(const float* at, const Loss& loss) {
    moved_ = at;
    by_ = kStep;
    const double above = loss();
    by_ = -kStep;
    const double below = loss();
    moved_ = nullptr;
    return (above - below) / (2 * kStep);
  }
  double Value(const float& v) const { return &v == moved_ ? v + by_ : v; }

  double Output(size_t row) const {
    const size_t layers = widths_.size() - 1;
    std::vector<double> h(widths_[0]);
    for (size_t k = 0; k < h.size(); ++k) h[k] = Value(input_[row * h.size() + k]);
    for (size_t l = 0; l < layers; ++l) {
      std::vector<double> z(widths_[l + 1]);
      for (size_t u = 0; u < z.size(); ++u) {
        z[u] = Value(dense_[2 * l + 1][u]);
        for (size_t k = 0; k < h.size(); ++k) z[u] += h[k] * Value(dense_[2 * l][k * z.size() + u]);
        if (l + 1 == layers) continue;
        z[u] = std::max(z[u], 0.0);
        if (dropout_.active())
          z[u] = dropout_.Keep(ids_[row], l, u) ? z[u] * dropout_.scale() : 0.0;
      }
      h = std::move(z);
    }
    return h[0];
  }

  const std::vector<size_t> widths_;
  const size_t rows_;
  const Dropout dropout_;
  std::mt19937_64 random_{11};
  std::vector<std::vector<float>> dense_;
  std::vector<float> input_, output_gradient_;
  std::vector<uint64_t> ids_;
  const float* moved_ = nullptr;
  double by_ = 0;
};

// Covers odd widths, one unit, more inputs than a block of weight gradients, and rows around a
// tile.
TEST(MlpTest, GradientsAgreeWithCentralDifferencesOfPlainLoops) {
  for (const size_t rows : {1, 63, 64, 65, 130}) {
    SCOPED_TRACE(testing::Message() << rows << " rows");
    for (const auto& widths :
         {std::vector<size_t>{1, 1, 1}, {3, 5, 1}, {7, 16, 3, 1}, {2, 9, 1, 5, 1}}) {
      MlpCase mlp(widths, rows);
      mlp.Expect(mlp.Run(true, 1));
    }
  }
  MlpCase wide({150, 3, 1}, 66);
  wide.Expect(wide.Run(true, 1));
}

TEST(MlpTest, DroppedUnitsHaveNoEffect) {
  for (const size_t rows : {5, 70}) {
    for (const float rate : {0.1f, 0.5f}) {
      MlpCase mlp({4, 9, 6, 1}, rows, rate);
      mlp.Expect(mlp.Run(true, 1));
    }
  }
}

TEST(MlpTest, PiecesAndTheirScaleGiveTheSameSum) {
  MlpCase mlp({5, 8, 3, 1}, 130, 0.25f);
  mlp.Expect(mlp.Run(true, 1, {{0, 1}, {1, 64}, {64, 130}}, 0.125), 0.125);
}

TEST(MlpTest, TilesHaveTheSameBitsAloneAndTogether) {
  const MlpCase mlp({6, 10, 4, 1}, 200, 0.3f);
  const auto alone = mlp.Run(true, 1), together = mlp.Run(true, 1, {}, 1, 3);
  EXPECT_EQ(alone.output, together.output);
  EXPECT_EQ(alone.dense, together.dense);
  EXPECT_EQ(alone.input_gradient, together.input_gradient);
}

TEST(MlpTest, OtherGradientsHaveTheSameBitsWithoutTheInputGradient) {
  const MlpCase mlp({6, 10, 4, 1}, 100, 0.3f);
  const auto with = mlp.Run(true, 1), without = mlp.Run(false, 1), threads = mlp.Run(true, 3);
  EXPECT_EQ(with.dense, without.dense);
  EXPECT_EQ(with.dense, threads.dense);
  EXPECT_EQ(with.output, threads.output);
  EXPECT_EQ(with.input_gradient, threads.input_gradient);
}

}  // namespace
}  // namespace sluice
