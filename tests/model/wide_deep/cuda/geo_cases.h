// Makes the same calls to Geo's values on a device, emulated or real, and to geo_reference.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "model/wide_deep/cuda/device_geo_optimizer.h"
#include "tests/model/wide_deep/cuda/geo_reference.h"
#include "tests/model/wide_deep/net_fixture.h"

namespace sluice::cuda {

// The device, and the memory in which a step would leave gradients.
class GeoPlace {
 public:
  virtual ~GeoPlace() = default;
  virtual std::unique_ptr<TableDevice> NewDevice() = 0;
  // Copies values to the device. The copy stays valid for the next 15 calls.
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
    layouts_ = GeoLayouts(shapes, rules, dims, dense_rule);
    sparse_ = layouts_[0].get();
    std::vector<const TableLayout*> dense;
    NetPlan plan{SmallShape()};
    plan.elements.clear();
    plan.row_dim = sparse_->dim();
    for (size_t i = 1; i < layouts_.size(); ++i) {
      dense.push_back(layouts_[i].get());
      plan.elements.push_back(dense.back()->elements());
      dense_.push_back(FreshReference(*dense.back(), plan.elements.back()));
    }
    at_ = InputLayout(plan, {}).dense;
    auto values = DeviceGeoOptimizer::Create(plan, dense, sparse_, clip_global_norm,
                                             place_->NewDevice(), &gradients_);
    EXPECT_TRUE(values.ok()) << values.status();
    device_ = *std::move(values);
    std::vector<const float*> start;
    for (GeoReference& table : dense_) {
      table.local = table.base = Random(table.local.size());
      start.push_back(table.local.data());
    }
    EXPECT_TRUE(device_->SetDense(start).ok());
  }

  GeoOptimizer& device() { return *device_; }
  const TableLayouts& layouts() const { return layouts_; }

  // Draws n of 2n slots at random, fills the missing ones and some others anew, and updates all.
  void Step(size_t n, uint64_t schedule_step, uint64_t count_step = 1) {
    const std::vector<uint32_t> slots = Draw(n);
    Fill(slots);
    GeoUpdate update;
    std::vector<uint64_t> counts;
    for (const uint32_t slot : slots) counts.push_back(rows_[slot].count += count_step);
    update.rows.resize(1);
    update.rows[0].slots = slots.data(), update.rows[0].counts = counts.data();
    update.rows[0].n = n;
    update.dense_count = ++dense_count_;
    update.schedule_step = schedule_step;
    std::vector<std::vector<float>> g = {Random(n * sparse_->dim())};
    for (const GeoReference& table : dense_) g.push_back(Random(table.local.size()));
    std::vector<std::vector<float>> scaled = g;  // scaled, as a step leaves them
    for (auto& tensor : scaled)
      for (float& value : tensor) value *= loss_scale_;
    gradients_ = {true, place_->Up(scaled[0]), n, {}, 1 / loss_scale_};
    for (size_t i = 1; i < g.size(); ++i) gradients_.dense.push_back(place_->Up(scaled[i]));
    const absl::Status status = device_->Update(update);
    EXPECT_TRUE(status.ok()) << status;
    ClipGlobalNorm(&g);
    for (size_t i = 0; i < n; ++i) {
      UpdateReference(*sparse_, &g[0][i * sparse_->dim()], schedule_step, counts[i],
                      &rows_[slots[i]]);
    }
    for (size_t i = 0; i < dense_.size(); ++i)
      UpdateReference(*layouts_[i + 1], g[i + 1].data(), schedule_step, dense_count_, &dense_[i]);
    touched_.insert(touched_.end(), slots.begin(), slots.end());
  }

  // Takes the delta of the touched rows, and merges the values that the server made of it.
  void Exchange(bool moves_meanwhile) {
    std::sort(touched_.begin(), touched_.end());
    touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
    const std::vector<uint32_t> slots = touched_;
    touched_.clear();
    std::vector<std::vector<float>> sent = Shaped(slots.size()), expected = sent;
    EXPECT_TRUE(device_->TakeDelta({{slots.data(), slots.size()}}, View(&sent)).ok());
    ForEach(slots, [&](GeoReference& values, size_t tensor, size_t at) {
      for (size_t i = 0; i < values.local.size(); ++i)
        expected[tensor][at + i] = values.local[i] - values.base[i];
    });
    EXPECT_EQ(sent, expected);
    if (moves_meanwhile) Step(slots.size() / 2, 7);
    std::vector<std::vector<float>> server = sent;
    for (auto& tensor : server)
      for (float& value : tensor) value = 0.5f * value + RandomValue();
    EXPECT_TRUE(device_->Merge({{slots.data(), slots.size()}}, View(&sent), View(&server)).ok());
    ForEach(slots, [&](GeoReference& values, size_t tensor, size_t at) {
      for (size_t i = 0; i < values.local.size(); ++i) {
        const float moved = (values.local[i] - values.base[i]) - sent[tensor][at + i];
        values.base[i] = server[tensor][at + i];
        values.local[i] = values.base[i] + moved;
      }
    });
  }

  // Copies all optimizer state out in pieces, overwrites it, and copies it back, as a checkpoint
  // and a resume do.
  void CopyState() {
    const auto copy = [](size_t n, auto read, auto write) {
      std::vector<float> state(n), other(n, 1e9f);
      const size_t half = n / 2;
      EXPECT_TRUE(read(0, half, state.data()).ok());
      EXPECT_TRUE(read(half, n - half, state.data() + half).ok());
      EXPECT_TRUE(write(0, n, other.data()).ok());
      EXPECT_TRUE(write(half, n - half, state.data() + half).ok());
      EXPECT_TRUE(write(0, half, state.data()).ok());
    };
    const size_t floats = sparse_->state_floats();
    for (uint32_t slot = 0; slot < rows_.size() && floats > 0; ++slot) {
      std::vector<float> state(floats), other(floats, 1e9f);
      EXPECT_TRUE(device_->ReadRowState(0, slot, 1, state.data()).ok());
      EXPECT_TRUE(device_->WriteRowState(0, slot, 1, other.data()).ok());
      EXPECT_TRUE(device_->WriteRowState(0, slot, 1, state.data()).ok());
    }
    for (size_t i = 0; i < dense_.size(); ++i) {
      const size_t n = dense_[i].local.size() * layouts_[i + 1]->columns()[0].rule->state_floats();
      copy(
          n, [&](size_t at, size_t m, float* to) { return device_->ReadDenseState(i, at, m, to); },
          [&](size_t at, size_t m, const float* from) {
            return device_->WriteDenseState(i, at, m, from);
          });
    }
  }

  void ExpectEqualBits() { ExpectLocal(0); }
  void ExpectClose(double tol) { ExpectLocal(tol); }

 private:
  float RandomValue() { return std::normal_distribution<float>(0, 0.7f)(random_); }
  std::vector<float> Random(size_t n) {
    std::vector<float> values(n);
    for (float& value : values) value = RandomValue();
    return values;
  }

  std::vector<uint32_t> Draw(size_t n) {
    std::vector<uint32_t> slots(2 * n);
    for (size_t i = 0; i < slots.size(); ++i) slots[i] = i;
    std::shuffle(slots.begin(), slots.end(), random_);
    slots.resize(n);
    return slots;
  }

  // Fills new slots and every 16th slot anew, every 5th with another value, as a cache does.
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
      if (anew) rows_[slot] = FreshReference(*sparse_, dim);
      rows_[slot].there = true;
      rows_[slot].local = rows_[slot].base = row;
    }
    const absl::Status status =
        device_->FillRows(0, {slots.data(), slots.size()}, fresh.data(), values.data());
    EXPECT_TRUE(status.ok()) << status;
  }

  // Clips as the worker does on the CPU.
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
    for (const GeoReference& table : dense_) shaped.emplace_back(table.local.size());
    return shaped;
  }
  static GeoExchange View(std::vector<std::vector<float>>* tensors) {
    GeoExchange view;
    view.rows = {(*tensors)[0].data()};
    for (size_t i = 1; i < tensors->size(); ++i) view.dense.push_back((*tensors)[i].data());
    return view;
  }
  template <typename Body>
  void ForEach(const std::vector<uint32_t>& slots, const Body& body) {
    for (size_t i = 0; i < slots.size(); ++i) body(rows_[slots[i]], 0, i * sparse_->dim());
    for (size_t i = 0; i < dense_.size(); ++i) body(dense_[i], i + 1, 0);
  }

  static void ExpectNear(const float* got, const std::vector<float>& expected, double tol,
                         const std::string& what) {
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_TRUE(std::isfinite(got[i]) &&
                  std::abs(got[i] - expected[i]) <= tol * (1 + std::abs(expected[i])))
          << what << "[" << i << "]: " << got[i] << ", expected " << expected[i];
    }
  }
  void ExpectLocal(double tol) {
    const auto& values = static_cast<const DeviceGeoOptimizer&>(*device_);
    for (size_t i = 0; i < dense_.size(); ++i) {
      const auto* const at = reinterpret_cast<const float*>(values.dense() + at_[i]);
      ExpectNear(place_->Down(at, dense_[i].local.size()).data(), dense_[i].local, tol,
                 "dense " + std::to_string(i));
    }
    const std::vector<float> rows = place_->Down(values.rows(), rows_.size() * sparse_->dim());
    for (size_t slot = 0; slot < rows_.size(); ++slot) {
      if (!rows_[slot].there) continue;
      ExpectNear(rows.data() + slot * sparse_->dim(), rows_[slot].local, tol,
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
  std::unique_ptr<GeoOptimizer> device_;
  std::mt19937_64 random_{3};
  std::vector<GeoReference> dense_, rows_;
  std::vector<uint32_t> touched_;
  uint64_t dense_count_ = 0;
};

}  // namespace sluice::cuda
