#include "model/wide_deep/cuda/step_layout.h"

#include <algorithm>

#include "gtest/gtest.h"
#include "model/wide_deep/cuda/sort_kernels.h"
#include "tests/model/wide_deep/net_fixture.h"

namespace sluice::cuda {
namespace {

TEST(PadTest, CoversWithFewValuesAndLittleWaste) {
  EXPECT_EQ(PadBatch(0), 0u);
  EXPECT_EQ(PadBatch(1), 64u);
  EXPECT_EQ(PadBatch(16384), 16384u);
  EXPECT_EQ(PadCount(0), 0u);
  EXPECT_EQ(PadCount(1), 64u);
  EXPECT_EQ(PadCount(65), 72u);
  uint32_t before = 0, values = 0;
  for (size_t n = 1; n < 3000000; ++n) {
    const uint32_t padded = PadCount(n);
    ASSERT_GE(padded, n);
    ASSERT_GE(padded, before) << n;
    ASSERT_LE(padded, std::max<size_t>(n + n / 8 + 8, 64)) << n;
    values += padded != before;
    before = padded;
  }
  EXPECT_LT(values, 150u);
}

// Expects parts [begin, begin + bytes) in the order of `parts`, aligned, without overlap and inside
// `total`.
void ExpectApart(std::vector<std::pair<size_t, size_t>> parts, size_t total) {
  std::sort(parts.begin(), parts.end());
  size_t end = 0;
  for (const auto& [begin, bytes] : parts) {
    EXPECT_EQ(begin % kAlignment, 0u);
    EXPECT_GE(begin, end);
    end = begin + bytes;
  }
  EXPECT_LE(end, total);
}

TEST(StepLayoutTest, PartsDoNotOverlap) {
  WideDeepShape net = WideShape({33, 9}, 5);
  net.dropout = 0.5f;
  const NetPlan plan(net);
  for (const size_t n : {0, 1, 33, 1000}) {
    const StepShape shape = Pad(n, n * 9, n * 3);
    const InputLayout in(plan, shape);
    const size_t b = shape.batch, k = shape.keys, u = shape.rows;
    std::vector<std::pair<size_t, size_t>> parts;
    for (size_t t = 0; t < plan.elements.size(); ++t)
      parts.push_back({in.dense[t], plan.elements[t] * 4});
    parts.insert(parts.end(), {{in.sizes, sizeof(StepHeader)},
                               {in.label, b * 4},
                               {in.weight, b * 4},
                               {in.numeric, b * 3 * 4},
                               {in.key_offsets, (b * 4 + 1) * 4},
                               {in.row_index, k * 4},
                               {in.example_id, b * 8},
                               {in.header, sizeof(StepHeader)},
                               {in.values, u * plan.row_dim * 4}});
    ExpectApart(parts, in.up_end);
    const size_t counts = kSortDigits * SortTiles(k) * 4;
    parts = {{in.sort_rows[0], k * 4},  {in.sort_rows[1], k * 4}, {in.sort_cells[0], k * 4},
             {in.sort_cells[1], k * 4}, {in.sort_counts, counts}, {in.row_begin, (u + 1) * 4}};
    ExpectApart(parts, in.total);
    for (const auto& part : parts) EXPECT_GE(part.first, in.up_end);

    const OutputLayout out(plan, shape);
    parts.clear();
    for (size_t t = 0; t < plan.elements.size(); ++t)
      parts.push_back({out.dense[t], plan.elements[t] * 4});
    parts.insert(
        parts.end(),
        {{out.result, sizeof(StepResult)}, {out.rows, u * plan.row_dim * 4}, {out.logits, b * 4}});
    ExpectApart(parts, out.total);
    // One copy downloads the result and all tensors except the hidden layers' weights.
    for (const size_t t : {1, 3, 4, 5, 6, 7}) {
      EXPECT_GE(out.dense[t], out.result);
      EXPECT_LE(out.dense[t] + plan.elements[t] * 4, out.small_end);
    }
    EXPECT_LE(out.small_end, out.rows);
  }
}

TEST(StepLayoutTest, TablesGiveThePlacesOfEmbeddingsAndNumbers) {
  WideDeepShape shape = SmallShape();
  shape.slots = {MakeSlot(true, true, false), MakeSlot(true, true, true),
                 MakeSlot(false, true, false), MakeSlot(true, false, true)};
  std::vector<char> block(ConstantLayout(shape).total);
  FillConstants(shape, block.data());
  const NetView net = ViewOf(shape, block.data());
  EXPECT_EQ(net.deep_inputs, 3u * 3 + 2);
  EXPECT_EQ(net.slots[0].deep_column, 0);
  EXPECT_EQ(net.slots[1].deep_column, 3);
  EXPECT_EQ(net.slots[2].deep_column, 6);
  EXPECT_EQ(net.slots[3].deep_column, -1);
  EXPECT_EQ(net.slots[1].mean, 1);
  EXPECT_EQ(net.slots[2].wide, 0);
  EXPECT_EQ(net.columns[4].slot, 1);
  EXPECT_EQ(net.columns[4].index, 1u);
  EXPECT_EQ(net.columns[9].slot, -1);
  EXPECT_EQ(net.columns[9].index, 1u);
  EXPECT_EQ(net.columns[10].index, 2u);
  EXPECT_EQ(net.wide_numeric[1], 2u);
}

}  // namespace
}  // namespace sluice::cuda
