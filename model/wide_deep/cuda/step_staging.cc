#include "model/wide_deep/cuda/step_staging.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "model/net/parallel.h"
#include "model/wide_deep/cuda/one_table.h"

namespace sluice::cuda {
namespace {

constexpr size_t kPart = 1 << 18;  // 4-byte elements that one thread copies at a time
// Keys and cells are counted in 32 bits, which must also hold the padded sizes.
constexpr size_t kMaxKeys = size_t{1} << 31;

struct Copy {
  char* to;
  const char* from;
  size_t bytes;
};

// Cuts the copies into parts for the threads.
std::vector<Copy> Cut(const std::vector<Copy>& copies) {
  std::vector<Copy> parts;
  for (const Copy& copy : copies) {
    for (size_t at = 0; at < copy.bytes; at += kPart * 4) {
      parts.push_back({copy.to + at, copy.from + at, std::min(kPart * 4, copy.bytes - at)});
    }
  }
  return parts;
}

void CopyAll(const std::vector<Copy>& copies, int threads) {
  const std::vector<Copy> parts = Cut(copies);
  ParallelFor(threads, parts.size(),
              [&](int, size_t i) { std::memcpy(parts[i].to, parts[i].from, parts[i].bytes); });
}

template <typename T>
Copy Of(char* block, size_t at, const T* from, size_t n) {
  return {block + at, reinterpret_cast<const char*>(from), n * sizeof(T)};
}

StepHeader SizesOf(const NetInput& input) {
  StepHeader header = {};
  header.n = input.batch->n;
  header.keys = input.batch->keys.size();
  header.rows = RowsOf(input).n;
  return header;
}

}  // namespace

StepShape ShapeOf(const Batch& batch, size_t num_rows) {
  return Pad(batch.n, batch.keys.size(), num_rows);
}

absl::Status CheckSize(const Batch& batch, size_t num_rows) {
  const size_t largest =
      std::max({batch.n * std::max<size_t>(batch.num_slots, 1), batch.keys.size(), num_rows});
  if (largest < kMaxKeys) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("wide_deep: a batch of ", batch.n, " examples has ", largest,
                   " cells, keys or rows; at most ", kMaxKeys, " fit; lower train.batch_size"));
}

double SumOfWeights(const Batch& batch) {
  double sum = 0;
  for (size_t i = 0; i < batch.n; ++i) sum += batch.weight[i];
  return sum;
}

StepHeader MakeHeader(const NetInput& input, const float* resident, const Dropout& dropout,
                      double weight_sum, double loss_scale) {
  StepHeader header = SizesOf(input);
  header.resident = resident;
  header.gradient_factor = weight_sum > 0 ? loss_scale / weight_sum : 0.0;
  header.dropout = dropout;
  return header;
}

Piece FillBatch(const NetPlan& plan, const InputLayout& layout, const NetInput& input, int threads,
                char* block) {
  const Batch& batch = *input.batch;
  const StepHeader sizes = SizesOf(input);
  std::vector<Copy> copies = {
      Of(block, layout.sizes, &sizes, 1),
      Of(block, layout.label, batch.label.data(), batch.n),
      Of(block, layout.weight, batch.weight.data(), batch.n),
      Of(block, layout.numeric, batch.numeric.data(), batch.n * plan.num_numeric),
      Of(block, layout.key_offsets, batch.key_offsets.data(), batch.n * plan.num_slots + 1),
  };
  // Only up to the last part that is filled, so that no more is uploaded than the batch has.
  size_t end = layout.key_offsets + (batch.n * plan.num_slots + 1) * sizeof(uint32_t);
  if (plan.row_dim > 0 && !batch.keys.empty()) {
    copies.push_back(Of(block, layout.row_index, input.row_index, batch.keys.size()));
    end = layout.row_index + batch.keys.size() * sizeof(uint32_t);
  }
  // Only dropout in training reads example ids; a forward pass may come without them.
  if (plan.dropout && batch.example_id.size() == batch.n) {
    copies.push_back(Of(block, layout.example_id, batch.example_id.data(), batch.n));
    end = layout.example_id + batch.n * sizeof(uint64_t);
  }
  CopyAll(copies, threads);
  return {layout.sizes, end};
}

Piece FillDense(const NetPlan& plan, const InputLayout& layout, const NetInput& input, int threads,
                char* block) {
  std::vector<Copy> copies;
  Piece piece;
  // In Geo the dense tensors are on the device.
  if (input.geo != nullptr) return piece;
  for (size_t t = 0; t < plan.elements.size(); ++t) {
    copies.push_back(Of(block, layout.dense[t], input.dense[t], plan.elements[t]));
    piece.end = layout.dense[t] + plan.elements[t] * sizeof(float);
  }
  CopyAll(copies, threads);
  return piece;
}

Piece FillValues(const NetPlan& plan, const InputLayout& layout, const NetInput& input,
                 const StepHeader& header, int threads, char* block) {
  std::vector<Copy> copies = {Of(block, layout.header, &header, 1)};
  const RowsInput rows = RowsOf(input);
  const size_t n = plan.row_dim > 0 ? rows.n : 0;
  // Rows that are on the device are named by their slots.
  if (header.resident != nullptr) {
    copies.push_back(Of(block, layout.values, rows.slots, n));
  } else if (input.geo == nullptr && rows.values != nullptr) {
    copies.push_back(Of(block, layout.values, rows.values, n * plan.row_dim));
  }
  CopyAll(copies, threads);
  return {layout.header, static_cast<size_t>(copies.back().to - block) + copies.back().bytes};
}

void ReadTensor(const NetPlan& plan, const OutputLayout& layout, const char* block, size_t tensor,
                int threads, NetGradients* gradients) {
  CopyAll({{reinterpret_cast<char*>(gradients->dense[tensor]), block + layout.dense[tensor],
            plan.elements[tensor] * sizeof(float)}},
          threads);
}

void ReadGradients(const NetPlan& plan, const OutputLayout& layout, const char* block,
                   size_t num_rows, float factor, bool early, int threads,
                   NetGradients* gradients) {
  std::vector<Copy> copies;
  const auto add = [&](float* to, size_t at, size_t n) {
    copies.push_back({reinterpret_cast<char*>(to), block + at, n * sizeof(float)});
  };
  for (size_t t = 0; t < plan.elements.size(); ++t) {
    // The others were taken one by one (ReadTensor).
    if (early || !plan.is_hidden_weight(t))
      add(gradients->dense[t], layout.dense[t], plan.elements[t]);
  }
  if (num_rows * plan.row_dim > 0) add(RowsOf(*gradients), layout.rows, num_rows * plan.row_dim);
  // The usual case without fp16: plain copies are faster than products.
  if (factor == 1.0f) return CopyAll(copies, threads);
  const std::vector<Copy> parts = Cut(copies);
  ParallelFor(threads, parts.size(), [&](int, size_t p) {
    float* to = reinterpret_cast<float*>(parts[p].to);
    const float* from = reinterpret_cast<const float*>(parts[p].from);
    for (size_t i = 0; i < parts[p].bytes / sizeof(float); ++i) to[i] = from[i] * factor;
  });
}

}  // namespace sluice::cuda
