#include "model/wide_deep/cuda/step_layout.h"

#include <algorithm>
#include <cstring>

#include "model/wide_deep/cuda/layer_kernels.h"
#include "model/wide_deep/cuda/one_table.h"
#include "model/wide_deep/cuda/row_kernels.h"
#include "model/wide_deep/cuda/sort_kernels.h"

namespace sluice::cuda {
uint32_t PadBatch(size_t n) { return static_cast<uint32_t>((n + 63) / 64 * 64); }

uint32_t PadCount(size_t n) {
  if (n == 0) return 0;
  size_t step = 8;
  while (n > 16 * step) step *= 2;
  return static_cast<uint32_t>(std::max<size_t>((n + step - 1) / step * step, 64));
}

StepShape Pad(size_t n, size_t keys, size_t rows) {
  return {PadBatch(n), PadCount(keys), PadCount(rows)};
}

NetPlan::NetPlan(const WideDeepShape& shape)
    : num_numeric(shape.num_numeric),
      num_slots(shape.slots.size()),
      row_dim(RowDimOf(shape)),
      hidden(shape.hidden.size()),
      widths(shape.widths()),
      embeddings(shape.deep() ? shape.deep_inputs() - shape.deep_numeric.size() : 0),
      elements(shape.dense_elements()),
      dropout(shape.dropout > 0),
      wide_column(HasWideColumn(shape)),
      num_wide_numeric(shape.wide_numeric.size()) {
  int tensor = shape.deep() ? static_cast<int>(2 * (hidden + 1)) : 0;
  wide_weight = num_wide_numeric > 0 ? tensor++ : -1;
  wide_bias = shape.wide_bias ? tensor : -1;
}

InputLayout::InputLayout(const NetPlan& plan, const StepShape& shape) {
  Places places;
  // Data from the host is at the front, in the order in which it arrives, so that each upload is
  // one copy.
  for (const size_t n : plan.elements) dense.push_back(places.Take(n, sizeof(float)));
  sizes = places.Take(1, sizeof(StepHeader));
  label = places.Take(shape.batch, sizeof(float));
  weight = places.Take(shape.batch, sizeof(float));
  numeric = places.Take(shape.batch * plan.num_numeric, sizeof(float));
  key_offsets = places.Take(shape.batch * plan.num_slots + 1, sizeof(uint32_t));
  row_index = places.Take(shape.keys, sizeof(uint32_t));
  example_id = places.Take(plan.dropout ? shape.batch : 0, sizeof(uint64_t));
  header = places.Take(1, sizeof(StepHeader));
  // Slots of resident rows share the place: a slot takes no more than a row.
  values = places.Take(shape.rows * plan.row_dim, sizeof(float));
  // From here on only the device writes.
  up_end = places.end();
  for (int side = 0; side < 2; ++side) {
    sort_rows[side] = places.Take(shape.keys, sizeof(uint32_t));
    sort_cells[side] = places.Take(shape.keys, sizeof(uint32_t));
  }
  sort_counts = places.Take(kSortDigits * SortTiles(shape.keys), sizeof(uint32_t));
  row_begin = places.Take(shape.rows + 1, sizeof(uint32_t));
  total = places.end();
}

OutputLayout::OutputLayout(const NetPlan& plan, const StepShape& shape) {
  Places places;
  dense.resize(plan.elements.size());
  for (size_t t = 0; t < dense.size(); ++t) {
    if (plan.is_hidden_weight(t)) dense[t] = places.Take(plan.elements[t], sizeof(float));
  }
  // Weights of hidden layers come first: each leaves alone. All that comes at the end of the step
  // is adjacent, for one copy.
  result = places.Take(1, sizeof(StepResult));
  for (size_t t = 0; t < dense.size(); ++t) {
    if (!plan.is_hidden_weight(t)) dense[t] = places.Take(plan.elements[t], sizeof(float));
  }
  small_end = places.end();
  rows = places.Take(shape.rows * plan.row_dim, sizeof(float));
  logits = places.Take(shape.batch, sizeof(float));
  total = places.end();
}

WorkLayout::WorkLayout(const NetPlan& plan, const StepShape& shape, Element element) {
  Places places;
  // Sized for f32 whatever the element is, since a forward pass always computes in f32.
  size_t widest = 0, sums = plan.num_wide_numeric + 2;
  for (size_t level = 0; level <= plan.hidden && plan.hidden > 0; ++level) {
    h.push_back(places.Take(shape.batch * plan.ld(level), sizeof(float)));
    const size_t ld = level == 0 ? NetPlan::Ld(plan.embeddings) : plan.ld(level);
    dz.push_back(places.Take(shape.batch * ld, sizeof(float)));
    widest = std::max(widest, plan.ld(level));
    sums = std::max(sums, 2 * plan.widths[level]);
  }
  const bool half = element != Element::kF32;
  for (size_t l = 0; l < plan.hidden; ++l) {
    weights.push_back(places.Take(half ? plan.widths[l] * plan.ld(l + 1) : 0, BytesOf(element)));
  }
  product = places.Take(half ? shape.batch * widest : 0, sizeof(float));
  d_logits = places.Take(shape.batch, sizeof(float));
  losses = places.Take(shape.batch, sizeof(double));
  partials = places.Take(Slices(shape.batch) * sums, sizeof(double));
  heads = places.Take(Chunks(shape.keys) * plan.row_dim, sizeof(float));
  tails = places.Take(Chunks(shape.keys) * plan.row_dim, sizeof(float));
  total = places.end();
}

ConstantLayout::ConstantLayout(const WideDeepShape& shape) {
  Places places;
  slots = places.Take(shape.slots.size(), sizeof(SlotTable));
  columns = places.Take(shape.deep_inputs(), sizeof(ColumnTable));
  wide_numeric = places.Take(shape.wide_numeric.size(), sizeof(uint32_t));
  total = places.end();
}

void FillConstants(const WideDeepShape& shape, char* to) {
  const ConstantLayout layout(shape);
  std::vector<SlotTable> slots;
  std::vector<ColumnTable> columns;
  const uint32_t dim = EmbeddingDimOf(shape);
  const bool embedded = shape.deep() && dim > 0;
  for (const WideDeepShape::Slot& slot : shape.slots) {
    SlotTable table;
    table.deep_column = embedded && slot.deep ? static_cast<int32_t>(columns.size()) : -1;
    table.wide = HasWideColumn(shape) && slot.wide;
    table.mean = slot.mean;
    for (uint32_t j = 0; table.deep_column >= 0 && j < dim; ++j)
      columns.push_back({static_cast<int32_t>(slots.size()), j});
    slots.push_back(table);
  }
  for (const uint32_t j : shape.deep_numeric) columns.push_back({-1, j});
  const auto copy = [to](size_t at, const auto& values) {
    if (!values.empty()) std::memcpy(to + at, values.data(), values.size() * sizeof(values[0]));
  };
  copy(layout.slots, slots);
  if (shape.deep()) copy(layout.columns, columns);
  copy(layout.wide_numeric, shape.wide_numeric);
}

NetView ViewOf(const WideDeepShape& shape, const char* constants) {
  const ConstantLayout layout(shape);
  NetView view;
  view.num_numeric = shape.num_numeric;
  view.num_slots = shape.slots.size();
  view.row_dim = RowDimOf(shape);
  view.embedding_begin = HasWideColumn(shape) ? 1 : 0;
  view.embedding_dim = EmbeddingDimOf(shape);
  view.deep_inputs = shape.deep() ? shape.deep_inputs() : 0;
  view.num_wide_numeric = shape.wide_numeric.size();
  view.slots = reinterpret_cast<const SlotTable*>(constants + layout.slots);
  view.columns = reinterpret_cast<const ColumnTable*>(constants + layout.columns);
  view.wide_numeric = reinterpret_cast<const uint32_t*>(constants + layout.wide_numeric);
  return view;
}

BatchView ViewOf(const InputLayout& layout, const char* input) {
  BatchView view;
  view.header = reinterpret_cast<const StepHeader*>(input + layout.header);
  view.label = reinterpret_cast<const float*>(input + layout.label);
  view.weight = reinterpret_cast<const float*>(input + layout.weight);
  view.numeric = reinterpret_cast<const float*>(input + layout.numeric);
  view.key_offsets = reinterpret_cast<const uint32_t*>(input + layout.key_offsets);
  view.row_index = reinterpret_cast<const uint32_t*>(input + layout.row_index);
  view.example_id = reinterpret_cast<const uint64_t*>(input + layout.example_id);
  view.slots = reinterpret_cast<const uint32_t*>(input + layout.values);
  view.rows = reinterpret_cast<const float*>(input + layout.values);
  return view;
}

}  // namespace sluice::cuda
