// The memory layout of a step: offsets into the blocks of input, work memory and output, for padded
// sizes.
//
// Invariants: Every part begins at a multiple of kAlignment. Parts do not overlap. A layout depends
// on the network and the sizes only.
//
// Thread safety: plain data, pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/net/cuda/half_types.h"
#include "model/wide_deep/cuda/step_view.h"
#include "model/wide_deep/shape/wide_deep_shape.h"

namespace sluice::cuda {

constexpr size_t kAlignment = 256;

// Assigns consecutive places in a block, each at a multiple of kAlignment.
//
// Thread safety: one thread.
class Places {
 public:
  // The offset of a place for n elements of `bytes` bytes each.
  size_t Take(size_t n, size_t bytes) {
    const size_t at = end_;
    end_ = (end_ + n * bytes + kAlignment - 1) / kAlignment * kAlignment;
    return at;
  }
  size_t end() const { return end_; }

 private:
  size_t end_ = 0;
};

// The type of the operands of matrix products and of the values stored between the products.
enum class Element { kF32, kBf16, kFp16 };
inline size_t BytesOf(Element element) { return element == Element::kF32 ? 4 : 2; }
// Calls body(T{}) with the type T of `element`.
template <typename Body>
void WithType(Element element, const Body& body) {
  switch (element) {
    case Element::kF32:
      return body(float{});
    case Element::kBf16:
      return body(Bf16{});
    case Element::kFp16:
      return body(Fp16{});
  }
}

// The padded sizes for which launches, downloads and CUDA graphs are planned.
struct StepShape {
  uint32_t batch = 0, keys = 0, rows = 0;
  bool operator==(const StepShape& o) const {
    return batch == o.batch && keys == o.keys && rows == o.rows;
  }
};
// Rounds up to a multiple of 64.
uint32_t PadBatch(size_t n);
// Rounds up to m * 2^e with m in [8, 16], at least 64; 0 stays 0. This adds at most an eighth to
// large counts and gives few different values, so few graphs.
uint32_t PadCount(size_t n);
StepShape Pad(size_t n, size_t keys, size_t rows);

// The properties of a network on which the layouts depend.
struct NetPlan {
  explicit NetPlan(const WideDeepShape& shape);

  size_t num_numeric, num_slots, row_dim;
  size_t hidden;                 // hidden layers, 0: no deep part
  std::vector<size_t> widths;    // [inputs, hidden..., 1]
  size_t embeddings;             // the first columns of the deep input, which are embeddings
  std::vector<size_t> elements;  // of each dense tensor
  bool dropout, wide_column;
  size_t num_wide_numeric;
  int wide_weight, wide_bias;  // indices of dense tensors; -1: none

  bool is_hidden_weight(size_t tensor) const { return tensor < 2 * hidden && tensor % 2 == 0; }
  // Elements that a row takes in memory: the width rounded up to a multiple of 8.
  static size_t Ld(size_t width) { return (width + 7) / 8 * 8; }
  size_t ld(size_t level) const { return Ld(widths[level]); }
};

// Uploaded: [dense tensors][sizes, batch][header, values]. `values` holds rows of the table, or the
// slots of resident rows. After up_end come the keys sorted by row, which the device computes from
// the batch. The offsets of dense tensors do not depend on the step's sizes, so that a block of
// local values (device_geo_optimizer.h) can use the same ones.
struct InputLayout {
  InputLayout(const NetPlan& plan, const StepShape& shape);
  std::vector<size_t> dense;
  size_t sizes;  // a StepHeader with only n, keys and rows set
  size_t label, weight, numeric, key_offsets, row_index, example_id;
  size_t header, values;
  size_t up_end;  // end of the part that is uploaded
  size_t sort_rows[2], sort_cells[2], sort_counts, row_begin;
  size_t total;
};

// Downloaded: [weights of hidden layers][result, all other dense tensors][row gradients][logits].
struct OutputLayout {
  OutputLayout(const NetPlan& plan, const StepShape& shape);
  std::vector<size_t> dense;
  size_t result, small_end, rows, logits;
  size_t total;
};

// Memory that stays on the device.
struct WorkLayout {
  WorkLayout(const NetPlan& plan, const StepShape& shape, Element element);
  std::vector<size_t> h;        // by level, without the output: [batch][ld]
  std::vector<size_t> dz;       // as h; level 0: f32 [batch][Ld(embeddings)]
  std::vector<size_t> weights;  // by hidden layer, 16-bit elements only: [in][ld of out]
  size_t product;               // 16-bit elements only: f32 [batch][widest ld]
  size_t d_logits, losses, partials;
  size_t heads, tails;
  size_t total;
};

// The tables of a NetView, which are constant for a network.
struct ConstantLayout {
  explicit ConstantLayout(const WideDeepShape& shape);
  size_t slots, columns, wide_numeric, total;
};
// to: [ConstantLayout::total].
void FillConstants(const WideDeepShape& shape, char* to);
// constants: address of the filled block on the device.
NetView ViewOf(const WideDeepShape& shape, const char* constants);
BatchView ViewOf(const InputLayout& layout, const char* input);

}  // namespace sluice::cuda
