// Geo's values on a device, emulated or not, beside plain loops over UpdateRule, given the same
// calls.
#pragma once

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/optimizer/learning_rate.h"
#include "gtest/gtest.h"
#include "model/net/cuda/device_geo_values.h"
#include "tests/model/net/net_fixture.h"

namespace sluice::cuda {

inline const std::vector<OptimizerConfig>& GeoRules() {
  static const std::vector<OptimizerConfig>* const rules = [] {
    auto* parsed = new std::vector<OptimizerConfig>;
    for (const char* text : {
             "sgd {} learning_rate: 0.1 weight_decay: 0.01",
             "momentum {} learning_rate: 0.05 clip_row_norm: 1.5",
             "momentum { nesterov: true momentum: 0.8 } learning_rate: 0.02 clip_value: 0.4",
             "adam {} learning_rate: 0.01 weight_decay: 0.02 clip_row_norm: 1",
             "ftrl { l1: 0.02 l2: 0.1 } learning_rate: 0.1",
             "adagrad { initial_accumulator: 0.1 } learning_rate: 0.05",
             "adam { beta1: 0.8 } learning_rate: 0.01 clip_value: 0.6 clip_row_norm: 0.9 "
             "schedule { exponential { steps: 50 rate: 0.9 } }",
             "ftrl {} learning_rate: 0.1 schedule { polynomial { steps: 500 } }",  // to rate 0
         }) {
      parsed->emplace_back();
      EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &parsed->back()));
    }
    return parsed;
  }();
  return *rules;
}

// The device and its memory, where a step would leave gradients.
class GeoPlace {
 public:
  virtual ~GeoPlace() = default;
  virtual std::unique_ptr<TableDevice> NewDevice() = 0;
  // A copy on the device, good until the next but 15th call.
  virtual const float* Up(const std::vector<float>& values) = 0;
  virtual std::vector<float> Down(const float* values, size_t n) = 0;
};

class GeoCase {
 public:
  // One sparse table with a column group a rule, dense tables of these shapes with `dense_rule`.
  GeoCase(std::unique_ptr<GeoPlace> place, const std::vector<std::vector<uint64_t>>& shapes,
          const std::vector<OptimizerConfig>& rules, const std::vector<uint32_t>& dims,
          const OptimizerConfig& dense_rule, double clip_global_norm = 0, float loss_scale = 1)
      : place_(std::move(place)), clip_global_norm_(clip_global_norm), loss_scale_(loss_scale) {
    layouts_ = Layouts(shapes, rules, dims, dense_rule);
    sparse_ = layouts_[0].get();
    std::vector<const TableLayout*> dense;
    NetPlan plan{SmallShape()};
    plan.elements.clear();
    plan.row_dim = sparse_->dim();
    for (size_t i = 1; i < layouts_.size(); ++i) {
      dense.push_back(layouts_[i].get());
      plan.elements.push_back(dense.back()->elements());
      dense_.push_back(Fresh(*dense.back(), plan.elements.back()));
    }
    at_ = InputLayout(plan, {}).dense;
    auto values = DeviceGeoValues::Create(plan, dense, sparse_, clip_global_norm,
                                          place_->NewDevice(), &gradients_);
    EXPECT_TRUE(values.ok()) << values.status();
    device_ = *std::move(values);
    std::vector<const float*> start;
    for (Values& table : dense_) {
      table.local = table.base = Random(table.local.size());
      start.push_back(table.local.data());
    }
    EXPECT_TRUE(device_->SetDense(start).ok());
  }

  GeoValues& device() { return *device_; }
  const TableLayouts& layouts() const { return layouts_; }

  // Fills what is missing of n slots of 2n drawn at random, some of them anew, and updates all.
  void Step(size_t n, uint64_t schedule_step, uint64_t count_step = 1) {
    const std::vector<uint32_t> slots = Draw(n);
    Fill(slots);
    GeoUpdate update;
    std::vector<uint64_t> counts;
    for (const uint32_t slot : slots) counts.push_back(rows_[slot].count += count_step);
    update.slots = slots.data(), update.counts = counts.data(), update.n = n;
    update.dense_count = ++dense_count_;
    update.schedule_step = schedule_step;
    std::vector<std::vector<float>> g = {Random(n * sparse_->dim())};
    for (const Values& table : dense_) g.push_back(Random(table.local.size()));
    std::vector<std::vector<float>> scaled = g;  // as a step leaves them
    for (auto& tensor : scaled)
      for (float& value : tensor) value *= loss_scale_;
    gradients_ = {true, place_->Up(scaled[0]), n, {}, 1 / loss_scale_};
    for (size_t i = 1; i < g.size(); ++i) gradients_.dense.push_back(place_->Up(scaled[i]));
    const absl::Status status = device_->Update(update);
    EXPECT_TRUE(status.ok()) << status;
    ClipGlobalNorm(&g);
    for (size_t i = 0; i < n; ++i) {
      Update(*sparse_, &g[0][i * sparse_->dim()], schedule_step, counts[i], &rows_[slots[i]]);
    }
    for (size_t i = 0; i < dense_.size(); ++i)
      Update(*layouts_[i + 1], g[i + 1].data(), schedule_step, dense_count_, &dense_[i]);
    touched_.insert(touched_.end(), slots.begin(), slots.end());
  }

  // A delta of what was touched, the merge with values that the server made of it.
  void Exchange(bool moves_meanwhile) {
    std::sort(touched_.begin(), touched_.end());
    touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
    const std::vector<uint32_t> slots = touched_;
    touched_.clear();
    std::vector<std::vector<float>> sent = Shaped(slots.size()), expected = sent;
    EXPECT_TRUE(device_->TakeDelta(slots.data(), slots.size(), View(&sent)).ok());
    ForEach(slots, [&](Values& values, size_t tensor, size_t at) {
      for (size_t i = 0; i < values.local.size(); ++i)
        expected[tensor][at + i] = values.local[i] - values.base[i];
    });
    EXPECT_EQ(sent, expected);
    if (moves_meanwhile) Step(slots.size() / 2, 7);
    std::vector<std::vector<float>> server = sent;
    for (auto& tensor : server)
      for (float& value : tensor) value = 0.5f * value + RandomValue();
    EXPECT_TRUE(device_->Merge(slots.data(), slots.size(), View(&sent), View(&server)).ok());
    ForEach(slots, [&](Values& values, size_t tensor, size_t at) {
      for (size_t i = 0; i < values.local.size(); ++i) {
        const float moved = (values.local[i] - values.base[i]) - sent[tensor][at + i];
        values.base[i] = server[tensor][at + i];
        values.local[i] = values.base[i] + moved;
      }
    });
  }

  void ExpectEqualBits() { ExpectLocal(0); }
  void ExpectClose(double tol) { ExpectLocal(tol); }

 private:
  struct Values {
    std::vector<float> local, base, state;
    uint64_t count = 0;
    bool there = false;
  };

  static TableLayouts Layouts(const std::vector<std::vector<uint64_t>>& shapes,
                              const std::vector<OptimizerConfig>& rules,
                              const std::vector<uint32_t>& dims,
                              const OptimizerConfig& dense_rule) {
    google::protobuf::RepeatedPtrField<TableConfig> tables;
    TableConfig* rows = tables.Add();
    rows->set_name("rows");
    rows->set_kind(TableConfig::SPARSE);
    rows->set_num_shards(4);
    for (size_t c = 0; c < rules.size(); ++c) {
      ColumnGroup* column = rows->add_columns();
      column->set_name("c" + std::to_string(c));
      column->set_dim(dims[c]);
      *column->mutable_optimizer() = rules[c];
      column->mutable_initializer()->set_constant(0);
    }
    for (const std::vector<uint64_t>& shape : shapes) {
      TableConfig* dense = tables.Add();
      dense->set_name("dense" + std::to_string(tables.size()));
      dense->set_kind(TableConfig::DENSE);
      for (const uint64_t n : shape) dense->add_shape(n);
      *dense->mutable_optimizer() = dense_rule;
      dense->mutable_initializer()->set_constant(0);
    }
    auto layouts = CreateTableLayouts(tables, 1);
    EXPECT_TRUE(layouts.ok()) << layouts.status();
    return *layouts;
  }

  float RandomValue() { return std::normal_distribution<float>(0, 0.7f)(random_); }
  std::vector<float> Random(size_t n) {
    std::vector<float> values(n);
    for (float& value : values) value = RandomValue();
    return values;
  }

  // Of n elements (dense) or of a row (n = dim): zeros with fresh state.
  static Values Fresh(const TableLayout& layout, size_t n) {
    Values values;
    values.local.resize(n), values.base.resize(n);
    values.state.resize(layout.sparse() ? layout.state_floats()
                                        : n * layout.columns()[0].rule->state_floats());
    for (const TableLayout::Column& column : layout.columns()) {
      const size_t dim = layout.sparse() ? column.dim : n;
      float* state[UpdateRule::kMaxState] = {};
      for (int i = 0; i < column.rule->state_floats(); ++i)
        state[i] = values.state.data() + column.state_begin + i * dim;
      column.rule->InitState(state, dim);
    }
    return values;
  }

  static void Update(const TableLayout& layout, const float* g, uint64_t step, uint64_t count,
                     Values* values) {
    for (const TableLayout::Column& column : layout.columns()) {
      const size_t dim = layout.sparse() ? column.dim : values->local.size();
      float* state[UpdateRule::kMaxState] = {};
      for (int i = 0; i < column.rule->state_floats(); ++i)
        state[i] = values->state.data() + column.state_begin + i * dim;
      column.rule->Apply(
          values->local.data() + column.begin, state, g + column.begin, dim,
          layout.sparse() ? dim : layout.row_elements(),
          LearningRateAt(column.optimizer.schedule(), column.optimizer.learning_rate(), step),
          count);
    }
  }

  std::vector<uint32_t> Draw(size_t n) {
    std::vector<uint32_t> slots(2 * n);
    for (size_t i = 0; i < slots.size(); ++i) slots[i] = i;
    std::shuffle(slots.begin(), slots.end(), random_);
    slots.resize(n);
    return slots;
  }

  // New slots, every 16th anew, and every 5th with another value: what a cache does.
  void Fill(const std::vector<uint32_t>& wanted) {
    std::vector<uint32_t> slots;
    std::vector<uint8_t> fresh;
    std::vector<float> values;
    const size_t dim = sparse_->dim();
    for (const uint32_t slot : wanted) {
      if (slot >= rows_.size()) rows_.resize(slot + 1);
      const bool anew = !rows_[slot].there || random_() % 16 == 0;
      if (!anew && random_() % 5 != 0) continue;
      slots.push_back(slot);
      fresh.push_back(anew);
      const std::vector<float> row = Random(dim);
      values.insert(values.end(), row.begin(), row.end());
      if (anew) rows_[slot] = Fresh(*sparse_, dim);
      rows_[slot].there = true;
      rows_[slot].local = rows_[slot].base = row;
    }
    const absl::Status status =
        device_->FillRows(slots.data(), fresh.data(), slots.size(), values.data());
    EXPECT_TRUE(status.ok()) << status;
  }

  // As the worker does on the CPU.
  void ClipGlobalNorm(std::vector<std::vector<float>>* gradients) const {
    double squared = 0;
    for (const auto& tensor : *gradients)
      for (const float value : tensor) squared += static_cast<double>(value) * value;
    if (clip_global_norm_ <= 0 || !(std::sqrt(squared) > clip_global_norm_)) return;
    const float scale = static_cast<float>(clip_global_norm_ / std::sqrt(squared));
    for (auto& tensor : *gradients)
      for (float& value : tensor) value *= scale;
  }

  // [rows][dense tables...]
  std::vector<std::vector<float>> Shaped(size_t rows) const {
    std::vector<std::vector<float>> shaped = {std::vector<float>(rows * sparse_->dim())};
    for (const Values& table : dense_) shaped.emplace_back(table.local.size());
    return shaped;
  }
  static GeoExchange View(std::vector<std::vector<float>>* tensors) {
    GeoExchange view;
    view.rows = (*tensors)[0].data();
    for (size_t i = 1; i < tensors->size(); ++i) view.dense.push_back((*tensors)[i].data());
    return view;
  }
  template <typename Body>
  void ForEach(const std::vector<uint32_t>& slots, const Body& body) {
    for (size_t i = 0; i < slots.size(); ++i) body(rows_[slots[i]], 0, i * sparse_->dim());
    for (size_t i = 0; i < dense_.size(); ++i) body(dense_[i], i + 1, 0);
  }

  void ExpectNear(const float* at, const std::vector<float>& expected, double tol,
                  const std::string& what) {
    const std::vector<float> got = place_->Down(at, expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_TRUE(std::isfinite(got[i]) &&
                  std::abs(got[i] - expected[i]) <= tol * (1 + std::abs(expected[i])))
          << what << "[" << i << "]: " << got[i] << ", expected " << expected[i];
    }
  }
  void ExpectLocal(double tol) {
    const auto& values = static_cast<const DeviceGeoValues&>(*device_);
    for (size_t i = 0; i < dense_.size(); ++i) {
      ExpectNear(reinterpret_cast<const float*>(values.dense() + at_[i]), dense_[i].local, tol,
                 "dense " + std::to_string(i));
    }
    for (size_t slot = 0; slot < rows_.size(); ++slot) {
      if (!rows_[slot].there) continue;
      ExpectNear(values.rows() + slot * sparse_->dim(), rows_[slot].local, tol,
                 "slot " + std::to_string(slot));
    }
  }

  const std::unique_ptr<GeoPlace> place_;
  const double clip_global_norm_;
  const float loss_scale_;
  TableLayouts layouts_;
  const TableLayout* sparse_ = nullptr;
  std::vector<size_t> at_;
  DeviceGradients gradients_;
  std::unique_ptr<GeoValues> device_;
  std::mt19937_64 random_{3};
  std::vector<Values> dense_, rows_;
  std::vector<uint32_t> touched_;
  uint64_t dense_count_ = 0;
};

}  // namespace sluice::cuda
