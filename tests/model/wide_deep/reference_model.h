// wide_deep in plain float64 loops, without regard to speed. The tests compare the real backends
// with it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "model/features/batch.h"
#include "model/net/dropout.h"
#include "model/wide_deep/shape/wide_deep_shape.h"

namespace sluice {

// The values of one step, in double.
struct ReferenceValues {
  std::vector<std::vector<double>> rows;   // by sparse table: [U][row_dim]
  std::vector<std::vector<double>> dense;  // by tensor
};

class ReferenceModel {
 public:
  explicit ReferenceModel(WideDeepShape shape) : shape_(std::move(shape)) {}

  // `dropout` null: none.
  std::vector<double> Logits(const Batch& batch, const std::vector<uint32_t>& row_index,
                             const ReferenceValues& values, const Dropout* dropout) const {
    std::vector<double> logits;
    for (size_t i = 0; i < batch.n; ++i) {
      logits.push_back(Wide(batch, row_index, values, i) +
                       Deep(batch, row_index, values, i, dropout));
    }
    return logits;
  }

  // The weighted mean log loss; 0 when all weights are 0.
  double Loss(const Batch& batch, const std::vector<uint32_t>& row_index,
              const ReferenceValues& values, const Dropout* dropout) const {
    const std::vector<double> logits = Logits(batch, row_index, values, dropout);
    double loss = 0, weight = 0;
    for (size_t i = 0; i < batch.n; ++i) {
      const double p = 1 / (1 + std::exp(-logits[i]));
      loss -=
          batch.weight[i] * (batch.label[i] * std::log(p) + (1 - batch.label[i]) * std::log(1 - p));
      weight += batch.weight[i];
    }
    return weight > 0 ? loss / weight : 0;
  }

  // Central differences of Loss for every value.
  ReferenceValues FiniteDifferences(const Batch& batch, const std::vector<uint32_t>& row_index,
                                    ReferenceValues values, const Dropout* dropout) const {
    ReferenceValues result = values;
    const auto differences = [&](std::vector<double>* of, std::vector<double>* to) {
      constexpr double kStep = 1e-5;
      for (size_t j = 0; j < of->size(); ++j) {
        const double before = (*of)[j];
        (*of)[j] = before + kStep;
        const double above = Loss(batch, row_index, values, dropout);
        (*of)[j] = before - kStep;
        const double below = Loss(batch, row_index, values, dropout);
        (*of)[j] = before;
        (*to)[j] = (above - below) / (2 * kStep);
      }
    };
    for (size_t t = 0; t < values.rows.size(); ++t) differences(&values.rows[t], &result.rows[t]);
    for (size_t t = 0; t < values.dense.size(); ++t)
      differences(&values.dense[t], &result.dense[t]);
    return result;
  }

 private:
  // How often a key counts.
  static double TimesOf(const Batch& batch, uint32_t key) {
    return batch.key_weights.empty() ? 1 : batch.key_weights[key];
  }

  // A row of the table of a slot.
  const double* Row(const ReferenceValues& values, size_t slot, uint32_t row) const {
    const uint32_t table = shape_.slots[slot].table;
    return values.rows[table].data() + row * shape_.row_dim(table);
  }

  bool HasWideColumn(const WideDeepShape::Slot& slot) const {
    return slot.table < shape_.tables() && shape_.wide_columns[slot.table];
  }

  double Wide(const Batch& batch, const std::vector<uint32_t>& row_index,
              const ReferenceValues& values, size_t i) const {
    size_t tensor = shape_.deep() ? 2 * (shape_.hidden.size() + 1) : 0;
    double sum = 0;
    if (!shape_.wide_numeric.empty()) {
      for (size_t j = 0; j < shape_.wide_numeric.size(); ++j) {
        sum +=
            values.dense[tensor][j] * batch.numeric[i * batch.num_numeric + shape_.wide_numeric[j]];
      }
      ++tensor;
    }
    if (shape_.wide_bias) sum += values.dense[tensor][0];
    for (size_t s = 0; s < batch.num_slots; ++s) {
      if (!HasWideColumn(shape_.slots[s])) continue;
      const size_t cell = i * batch.num_slots + s;
      for (uint32_t k = batch.key_offsets[cell];
           shape_.slots[s].wide && k < batch.key_offsets[cell + 1]; ++k) {
        sum += Row(values, s, row_index[k])[0] * TimesOf(batch, k);
      }
    }
    return sum;
  }

  double Deep(const Batch& batch, const std::vector<uint32_t>& row_index,
              const ReferenceValues& values, size_t i, const Dropout* dropout) const {
    if (!shape_.deep()) return 0;
    std::vector<double> x = Inputs(batch, row_index, values, i);
    for (size_t l = 0; l <= shape_.hidden.size(); ++l) {
      const std::vector<double>&weight = values.dense[2 * l], &bias = values.dense[2 * l + 1];
      std::vector<double> y = bias;
      for (size_t a = 0; a < x.size(); ++a) {
        for (size_t b = 0; b < y.size(); ++b) y[b] += x[a] * weight[a * y.size() + b];
      }
      if (l == shape_.hidden.size()) return y[0];
      for (size_t b = 0; b < y.size(); ++b) {
        y[b] = std::max(y[b], 0.0);
        if (dropout != nullptr && shape_.dropout > 0) {
          y[b] = dropout->Keep(batch.example_id[i], l, b) ? y[b] / (1.0 - shape_.dropout) : 0;
        }
      }
      x = y;
    }
    return 0;
  }

  std::vector<double> Inputs(const Batch& batch, const std::vector<uint32_t>& row_index,
                             const ReferenceValues& values, size_t i) const {
    std::vector<double> x;
    for (size_t s = 0; s < batch.num_slots; ++s) {
      if (!shape_.slots[s].deep) continue;
      const size_t cell = i * batch.num_slots + s;
      const uint32_t begin = batch.key_offsets[cell], end = batch.key_offsets[cell + 1];
      for (size_t j = 0; j < shape_.embedding_dim(shape_.slots[s]); ++j) {
        double sum = 0, times = 0;
        for (uint32_t k = begin; k < end; ++k) {
          sum += Row(values, s, row_index[k])[shape_.embedding_begin(shape_.slots[s].table) + j] *
                 TimesOf(batch, k);
          times += TimesOf(batch, k);
        }
        x.push_back(shape_.slots[s].mean && times > 0 ? sum / times : sum);
      }
    }
    for (uint32_t j : shape_.deep_numeric) x.push_back(batch.numeric[i * batch.num_numeric + j]);
    return x;
  }

  const WideDeepShape shape_;
};

}  // namespace sluice
