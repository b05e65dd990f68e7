// Compares functions of the kernels one by one with plain loops: half types, sort, row gradients
// and sums.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "gtest/gtest.h"
#include "tests/model/wide_deep/cuda/host_ops.h"

namespace sluice::cuda {
namespace {

TEST(HalfTypesTest, EveryFp16SurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Fp16 half = {static_cast<uint16_t>(bits)};
    Fp16 again;
    FromFloat(ToFloat(half), &again);
    if (std::isnan(ToFloat(half))) {
      EXPECT_TRUE(std::isnan(ToFloat(again))) << bits;
    } else {
      ASSERT_EQ(again.bits, half.bits) << bits;
    }
    EXPECT_EQ(Overflowed(half), !std::isfinite(ToFloat(half)));
  }
}

TEST(HalfTypesTest, Fp16RoundsToTheNearestAndHalvesToEven) {
  // Tests below, at and above the middle between neighbours.
  for (uint32_t bits = 0; bits < 0x7BFF; ++bits) {
    const float low = ToFloat(Fp16{static_cast<uint16_t>(bits)});
    const float high = ToFloat(Fp16{static_cast<uint16_t>(bits + 1)});
    const float middle = (low + high) / 2;  // exact in float
    const auto rounded = [](float value) {
      Fp16 half;
      FromFloat(value, &half);
      return half.bits;
    };
    ASSERT_EQ(rounded(middle), bits % 2 == 0 ? bits : bits + 1) << bits;
    ASSERT_EQ(rounded(std::nextafter(middle, 0.0f)), bits) << bits;
    ASSERT_EQ(rounded(std::nextafter(middle, 1e9f)), bits + 1) << bits;
    ASSERT_EQ(rounded(-middle) & 0x7FFFu, rounded(middle)) << bits;
  }
  Fp16 half;
  FromFloat(65519.996f, &half);
  EXPECT_EQ(ToFloat(half), 65504.0f);
  for (const float large : {65520.0f, 1e30f, INFINITY}) {
    FromFloat(large, &half);
    EXPECT_EQ(ToFloat(half), INFINITY) << large;
  }
}

TEST(HalfTypesTest, Bf16RoundsToTheNearest) {
  Bf16 half;
  FromFloat(1.0f + 0x1p-8f, &half);  // half way: rounds to even
  EXPECT_EQ(ToFloat(half), 1.0f);
  FromFloat(1.0f + 3 * 0x1p-8f, &half);
  EXPECT_EQ(ToFloat(half), 1.0f + 4 * 0x1p-8f);
  FromFloat(std::nanf(""), &half);
  EXPECT_TRUE(std::isnan(ToFloat(half)));
}

// Sorts (row, cell) pairs with the passes of the device, which are planned for `padded` keys.
void ExpectSorts(uint32_t keys, uint32_t rows, uint32_t padded, uint64_t seed) {
  SCOPED_TRACE(testing::Message() << keys << " keys, " << rows << " rows, planned " << padded);
  std::mt19937_64 random(seed);
  std::vector<uint32_t> row(padded, 0xFFFFFFFFu), cell(padded, 0xFFFFFFFFu);
  for (uint32_t k = 0; k < keys; ++k) row[k] = random() % rows, cell[k] = k;
  std::vector<uint32_t> order(keys);
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return row[a] < row[b]; });
  StepHeader header = {};
  header.keys = keys, header.rows = rows;
  std::vector<uint32_t> next_row(padded), next_cell(padded);
  std::vector<uint32_t> counts(kSortDigits * SortTiles(padded) + 1, 0xFFFFFFFFu);
  HostOps ops;
  const std::vector<uint32_t> given = row;
  for (uint32_t pass = 0; pass < SortPasses(rows); ++pass) {
    SortArgs args = {&header,     pass,          padded,          row.data(),
                     cell.data(), counts.data(), next_row.data(), next_cell.data()};
    ops.SortPass(args);
    row.swap(next_row), cell.swap(next_cell);
  }
  EXPECT_EQ(counts.back(), 0xFFFFFFFFu);
  for (uint32_t p = 0; p < keys; ++p) {
    ASSERT_EQ(cell[p], order[p]) << p;
    ASSERT_EQ(row[p], given[order[p]]) << p;
  }
  std::vector<uint32_t> begin(rows + 1);
  ops.FindRows(&header, row.data(), rows, begin.data());
  for (uint32_t r = 0; r <= rows; ++r) {
    EXPECT_EQ(begin[r], std::lower_bound(row.begin(), row.begin() + keys, r) - row.begin()) << r;
  }
}

TEST(SortTest, StableForAllSizesThatBreakKernels) {
  uint64_t seed = 1;
  for (const uint32_t keys : {0u, 1u, 15u, 16u, 17u, 31u, 32u, 33u, 2047u, 2048u, 2049u, 10001u}) {
    for (const uint32_t rows : {1u, 2u, 63u, 64u, 65u, 4096u, 4097u}) {
      ExpectSorts(keys, rows, keys, ++seed);
      ExpectSorts(keys, rows, keys + 3000, ++seed);
    }
  }
  ExpectSorts(5000, 300000, 5000, ++seed);
  ExpectSorts(200000, 20000000, 200000, ++seed);
}

TEST(SortTest, PassesCoverTheRows) {
  EXPECT_EQ(SortPasses(0), 1u);
  EXPECT_EQ(SortPasses(64), 1u);
  EXPECT_EQ(SortPasses(65), 2u);
  EXPECT_EQ(SortPasses(4096), 2u);
  EXPECT_EQ(SortPasses(4097), 3u);
  EXPECT_EQ(SortPasses(0xFFFFFFFFu), 6u);
}

// Compares row sums by chunks with plain sums, for keys that are already sorted.
void ExpectRowSums(const std::vector<uint32_t>& keys_of_row) {
  const uint32_t rows = keys_of_row.size();
  std::vector<uint32_t> sorted_rows, begin = {0};
  for (uint32_t r = 0; r < rows; ++r) {
    sorted_rows.insert(sorted_rows.end(), keys_of_row[r], r);
    begin.push_back(sorted_rows.size());
  }
  const uint32_t keys = sorted_rows.size();
  std::vector<uint32_t> cells(keys);
  std::iota(cells.begin(), cells.end(), 0u);
  std::vector<uint32_t> offsets(keys + 1);
  std::iota(offsets.begin(), offsets.end(), 0u);
  std::vector<float> d(keys);
  for (uint32_t k = 0; k < keys; ++k) d[k] = static_cast<float>(k % 7) - 2.5f;  // sums are exact
  StepHeader header = {};
  header.n = keys, header.keys = keys, header.rows = rows;
  const SlotTable slot = {-1, 1, 0};
  NetView net = {};
  net.num_slots = 1, net.row_dim = 1, net.embedding_begin = 1, net.slots = &slot;
  BatchView batch = {};
  batch.header = &header, batch.key_offsets = offsets.data();
  std::vector<float> heads(Chunks(keys) + 1, NAN), tails = heads, gradient(rows, NAN);
  RowGradientView view = {sorted_rows.data(), cells.data(), begin.data(),   d.data(), nullptr, 0,
                          heads.data(),       tails.data(), gradient.data()};
  HostOps().RowGradients(net, batch, view, keys, rows);
  for (uint32_t r = 0; r < rows; ++r) {
    EXPECT_EQ(gradient[r], std::accumulate(d.begin() + begin[r], d.begin() + begin[r + 1], 0.0f))
        << "row " << r << " of " << keys_of_row[r] << " keys from " << begin[r];
  }
}

TEST(RowGradientsTest, RowsOverChunkBordersAndWithoutKeys) {
  ExpectRowSums({});
  ExpectRowSums({0});
  ExpectRowSums({1});
  ExpectRowSums({0, 32, 0, 32, 0});
  ExpectRowSums({31, 1, 33, 0, 63, 64, 65, 2});
  ExpectRowSums({1, 1000, 1, 1, 31, 0, 5});
  std::mt19937_64 random(3);
  for (int i = 0; i < 50; ++i) {
    std::vector<uint32_t> keys(random() % 40);
    for (uint32_t& n : keys) n = random() % 4 == 0 ? random() % 200 : random() % 3;
    ExpectRowSums(keys);
  }
}

TEST(ColumnSumsTest, AllSizesThatBreakKernels) {
  for (const uint32_t n : {1u, 31u, 32u, 33u, 255u, 256u, 257u, 1000u}) {
    std::vector<float> g(n), x(n);
    std::vector<double> losses(n);
    double gx = 0, sum = 0, loss = 0;
    for (uint32_t i = 0; i < n; ++i) {
      g[i] = static_cast<float>(i % 5) - 1.5f, x[i] = static_cast<float>(i % 3), losses[i] = i;
      gx += static_cast<double>(g[i]) * x[i], sum += g[i], loss += losses[i];
    }
    StepHeader header = {};
    header.n = n;
    const uint32_t wide_numeric = 0;
    float got[3] = {};
    double got_loss = 0;
    std::vector<double> partials(3 * Slices(PadBatch(n)), NAN);
    WideArgs args = {&header,
                     {g.data(), losses.data(), x.data(), &wide_numeric, 1, 1},
                     PadBatch(n),
                     partials.data(),
                     {got, got + 1, got + 2, &got_loss, 1}};
    HostOps().WideSums(args);
    EXPECT_EQ(got[0], static_cast<float>(gx));
    EXPECT_EQ(got[1], static_cast<float>(sum));
    EXPECT_EQ(got[2], got[1]);
    EXPECT_EQ(got_loss, loss);
  }
}

}  // namespace
}  // namespace sluice::cuda
