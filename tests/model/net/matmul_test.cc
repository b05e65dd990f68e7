#include "model/net/matmul.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace sluice {
namespace {

std::vector<float> Numbers(size_t n, uint32_t seed) {
  std::vector<float> values(n);
  for (float& v : values)
    v = static_cast<float>((seed = seed * 1664525u + 1013904223u) >> 8) * 0x1p-24f - 0.5f;
  return values;
}

uint16_t ToBf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

std::vector<uint16_t> ToBf16(const std::vector<float>& values) {
  std::vector<uint16_t> half;
  for (const float value : values) half.push_back(ToBf16(value));
  return half;
}

// Compares with plain loops in double, with B plain and packed, and C set and added to.
void ExpectOneProduct(const Matmul::Shape& s) {
  auto matmul = Matmul::Create(s, 1);
  ASSERT_TRUE(matmul.ok()) << matmul.status();
  const std::vector<float> a = Numbers((s.a_transposed ? s.k : s.m) * s.lda, 1),
                           b = Numbers(s.k * s.n, 2);
  std::vector<float> c(s.m * s.n, s.accumulate ? 2.5f : std::nanf(""));
  std::vector<char> packed((*matmul)->packed_bytes());
  if (s.b_packed) (*matmul)->Pack(0, b.data(), packed.data());
  const std::vector<uint16_t> half_a = ToBf16(a), half_b = ToBf16(b);
  const auto operand = [&s](const std::vector<float>& values, const std::vector<uint16_t>& half) {
    return s.bf16 ? static_cast<const void*>(half.data()) : values.data();
  };
  (*matmul)->Run(0, operand(a, half_a),
                 s.b_packed ? static_cast<const void*>(packed.data()) : operand(b, half_b),
                 c.data());
  // bf16 keeps 8 bits of each factor; they are at most 0.5.
  const double tolerance = s.bf16 ? 1e-3 * std::sqrt(s.k) + 1e-3 : 1e-5;
  for (int64_t i = 0; i < s.m; ++i) {
    for (int64_t j = 0; j < s.n; ++j) {
      double sum = s.accumulate ? 2.5 : 0;
      for (int64_t k = 0; k < s.k; ++k) {
        sum += static_cast<double>(a[s.a_transposed ? k * s.lda + i : i * s.lda + k]) *
               b[s.b_transposed ? j * s.k + k : k * s.n + j];
      }
      const double got = c[i * s.n + j];
      ASSERT_TRUE(std::isfinite(got) && std::abs(got - sum) <= tolerance)
          << i << " " << j << ": " << got << " " << sum;
    }
  }
}

void ExpectProduct(Matmul::Shape s) {
  for (const bool bf16 : {false, true}) {
    for (const bool packed : {false, true}) {
      for (const bool accumulate : {false, true}) {
        s.bf16 = bf16;
        s.b_packed = packed;
        s.accumulate = accumulate;
        ExpectOneProduct(s);
      }
    }
  }
}

Matmul::Shape MakeShape(int64_t m, int64_t k, int64_t n) {
  Matmul::Shape s;
  s.m = m, s.k = k, s.n = n, s.lda = k;
  return s;
}

TEST(MatmulTest, AgreesWithPlainLoops) {
  for (int64_t k : {1, 21}) {
    for (int64_t n : {1, 100}) {
      Matmul::Shape s = MakeShape(64, k, n);
      ExpectProduct(s);
      s.b_transposed = true;
      ExpectProduct(s);
      s = MakeShape(13, k, n);
      s.a_transposed = true;
      s.lda = 29;
      ExpectProduct(s);
    }
  }
}

// CTest also runs these tests with this limit, and would not notice a library that ignores it.
TEST(MatmulTest, OneDnnKeepsToTheInstructionsOfTheEnvironment) {
  const char* const limit = std::getenv("DNNL_MAX_CPU_ISA");
  if (limit == nullptr || std::string(limit) != "AVX2") GTEST_SKIP() << "no such limit is set";
  EXPECT_FALSE(Matmul::HasBf16Products());
}

TEST(MatmulTest, LanesRunConcurrently) {
  const Matmul::Shape s = MakeShape(64, 40, 50);
  auto matmul = Matmul::Create(s, 4);
  ASSERT_TRUE(matmul.ok());
  const std::vector<float> a = Numbers(64 * 40, 1), b = Numbers(40 * 50, 2);
  std::vector<std::vector<float>> c(4, std::vector<float>(64 * 50));
  std::vector<std::thread> threads;
  for (int lane = 0; lane < 4; ++lane) {
    threads.emplace_back([&, lane] {
      for (int i = 0; i < 50; ++i) (*matmul)->Run(lane, a.data(), b.data(), c[lane].data());
    });
  }
  for (std::thread& t : threads) t.join();
  for (int lane = 1; lane < 4; ++lane) EXPECT_EQ(c[lane], c[0]);
}

TEST(MatmulTest, ErrorOfAnImpossibleShapeNamesItsSizes) {
  auto matmul = Matmul::Create(MakeShape(-3, 4, 5), 1);
  EXPECT_NE(std::string(matmul.status().message()).find("[-3, 4]"), std::string::npos)
      << matmul.status();
}

}  // namespace
}  // namespace sluice
