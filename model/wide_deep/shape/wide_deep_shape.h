// The shape of a wide_deep network, on which the tables and all backends agree.
//
// Format:
//   sparse row      [wide weight: 1 float if its table has one][embedding: embedding_dim of its
//   table] deep input      [embedding of each in_deep slot, in slot order][in_deep numbers, in
//   order] dense tensors   for each layer: weight [in, out], bias [out] (out = 1 in the last
//   layer);
//                   wide weight [wide_numeric.size()], if not empty; wide bias [1], if wide_bias
//
// Thread safety: plain data.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice {

struct WideDeepShape {
  struct Slot {
    bool wide = true;
    bool deep = true;
    bool mean = false;      // pooling of the deep part; the wide part always sums
    bool weighted = false;  // its keys count as often as Batch::key_weights says
    uint32_t table = 0;     // index of its table in embedding_dims
  };
  size_t num_numeric = 0;              // numbers of an example
  std::vector<uint32_t> wide_numeric;  // indices of the numbers in the wide part
  std::vector<uint32_t> deep_numeric;  // indices of the numbers in the deep part
  std::vector<Slot> slots;
  bool wide_bias = true;
  // By sparse table: the width of its embeddings; 0: its rows have none. Rows of dense tables
  // (DenseEmbeddingNet) count as those of one sparse table. Empty: there are no rows.
  std::vector<uint32_t> embedding_dims;
  // By sparse table: whether its rows begin with a weight of the wide part.
  std::vector<bool> wide_columns;
  std::vector<uint32_t> hidden;  // empty: no deep part
  float dropout = 0;
  bool bf16 = false;  // training rounds the operands of the hidden layers' products; sums are f32

  bool deep() const { return !hidden.empty(); }
  size_t tables() const { return embedding_dims.size(); }
  size_t row_dim(size_t table) const { return embedding_begin(table) + embedding_dims[table]; }
  // 0 for a slot without rows: a model without rows has no table 0.
  size_t embedding_dim(const Slot& slot) const {
    return slot.table < tables() ? embedding_dims[slot.table] : 0;
  }
  // Where embeddings begin in the rows of a table.
  size_t embedding_begin(size_t table) const { return wide_columns[table] ? 1 : 0; }
  bool any_wide_column() const {
    return std::find(wide_columns.begin(), wide_columns.end(), true) != wide_columns.end();
  }
  size_t deep_inputs() const {
    size_t n = deep_numeric.size();
    for (const Slot& slot : slots) n += slot.deep ? embedding_dim(slot) : 0;
    return n;
  }
  // Widths of the deep part, including the inputs and the single output; empty without a deep part.
  std::vector<size_t> widths() const {
    if (!deep()) return {};
    std::vector<size_t> w = {deep_inputs()};
    w.insert(w.end(), hidden.begin(), hidden.end());
    w.push_back(1);
    return w;
  }
  // Elements of each dense tensor, in order.
  std::vector<size_t> dense_elements() const {
    std::vector<size_t> n;
    const std::vector<size_t> w = widths();
    for (size_t l = 0; l + 1 < w.size(); ++l) {
      n.push_back(w[l] * w[l + 1]);
      n.push_back(w[l + 1]);
    }
    if (!wide_numeric.empty()) n.push_back(wide_numeric.size());
    if (wide_bias) n.push_back(1);
    return n;
  }
};

}  // namespace sluice
