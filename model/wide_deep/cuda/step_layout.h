// Where everything of a step lies: offsets into a block of inputs, one of work memory and one of
// outputs, for padded sizes.
//
// Invariants: every part begins at a multiple of kAlignment; parts do not overlap; a layout is a
// function of network and sizes.
//
// Thread safety: plain data, pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/net/cuda/places.h"
#include "model/wide_deep/cuda/step_view.h"
#include "model/wide_deep/shape/wide_deep_shape.h"

namespace sluice::cuda {

// Of operands of matrix products and of what is stored between them.
enum class Element { kF32, kBf16, kFp16 };
inline size_t BytesOf(Element element) { return element == Element::kF32 ? 4 : 2; }

// Sizes that launches, copies down and CUDA graphs are planned for: at least the real ones.
struct StepShape {
  uint32_t batch = 0, keys = 0, rows = 0;
  bool operator==(const StepShape& o) const {
    return batch == o.batch && keys == o.keys && rows == o.rows;
  }
};
// A multiple of 64.
uint32_t PadBatch(size_t n);
// m * 2^e with m in [8, 16], at least 64 (0 stays 0): at most an eighth more, and few values.
uint32_t PadCount(size_t n);
StepShape Pad(size_t n, size_t keys, size_t rows);

// What of a network the layouts depend on.
struct NetPlan {
  explicit NetPlan(const WideDeepShape& shape);

  size_t num_numeric, num_slots, row_dim;
  size_t hidden;                 // hidden layers, 0: no deep part
  std::vector<size_t> widths;    // [inputs, hidden..., 1]
  size_t embeddings;             // columns of the deep input that are embeddings: the first ones
  std::vector<size_t> elements;  // of each dense tensor
  bool dropout, wide_column;
  size_t num_wide_numeric;
  int wide_weight, wide_bias;  // dense tensors; -1: none

  bool is_hidden_weight(size_t tensor) const { return tensor < 2 * hidden && tensor % 2 == 0; }
  // Elements of a row of a level in memory: widths rounded up to 8.
  static size_t Ld(size_t width) { return (width + 7) / 8 * 8; }
  size_t ld(size_t level) const { return Ld(widths[level]); }
};

// Goes up: [dense tensors][sizes, batch][header, values]. Of `values` a step brings rows of the
// table or slots of resident ones, in the same place. What comes of the batch alone stays behind
// them: its keys, sorted by row. The places of dense tensors do not depend on the step's sizes: a
// block of local values (device_geo_optimizer.h) has them there, too.
struct InputLayout {
  InputLayout(const NetPlan& plan, const StepShape& shape);
  std::vector<size_t> dense;
  size_t sizes;  // a StepHeader of which n, keys and rows are set
  size_t label, weight, numeric, key_offsets, row_index, example_id;
  size_t header, values;
  size_t up_end;  // what goes up lies before
  size_t sort_rows[2], sort_cells[2], sort_counts, row_begin;
  size_t total;
};

// Comes down: [weights of hidden layers][result, all other dense tensors][row gradients][logits].
struct OutputLayout {
  OutputLayout(const NetPlan& plan, const StepShape& shape);
  std::vector<size_t> dense;
  size_t result, small_end, rows, logits;
  size_t total;
};

// Stays on the device.
struct WorkLayout {
  WorkLayout(const NetPlan& plan, const StepShape& shape, Element element);
  std::vector<size_t> h;        // by level, [batch][ld]; the output excluded
  std::vector<size_t> dz;       // the same; level 0: f32 [batch][Ld(embeddings)]
  std::vector<size_t> weights;  // by hidden layer, 16-bit elements only: [in][ld of out]
  size_t product;               // 16-bit elements only: f32 [batch][widest ld]
  size_t d_logits, losses, partials;
  size_t heads, tails;
  size_t total;
};

// Tables of NetView, made once.
struct ConstantLayout {
  explicit ConstantLayout(const WideDeepShape& shape);
  size_t slots, columns, wide_numeric, total;
};
// to: [ConstantLayout::total].
void FillConstants(const WideDeepShape& shape, char* to);
// constants: where the filled block lies for the kernels.
NetView ViewOf(const WideDeepShape& shape, const char* constants);
BatchView ViewOf(const InputLayout& layout, const char* input);

}  // namespace sluice::cuda
