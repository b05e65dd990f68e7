// Uses a network on a simulated device, and the values of Geo beside it, in every way that a worker
// does. For tests of the host's work around the steps.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "model/net/geo_optimizer.h"
#include "model/wide_deep/cuda/cuda_net.h"
#include "tests/model/wide_deep/cuda/ahead_cases.h"
#include "tests/model/wide_deep/cuda/geo_reference.h"
#include "tests/model/wide_deep/cuda/simulated/world.h"

namespace sluice::cuda::simulated {

inline NetOptions OnDevice(int ordinal = 0) {
  NetOptions options;
  options.device.kind = ComputeDevice::kCuda;
  options.device.ordinal = ordinal;
  options.threads = 1;
  options.max_batch = 16;
  return options;
}

// All values that came back from the device, in order.
using Results = std::vector<std::vector<float>>;

class WholeUse {
 public:
  // Makes device `elsewhere` the current one before each call; -1 leaves the current device.
  explicit WholeUse(size_t num_rows = 90, const std::vector<size_t>& sizes = {40, 150, 7},
                    int elsewhere = -1)
      : case_(SmallShape(), num_rows), layouts_(Layouts(case_.shape())), elsewhere_(elsewhere) {
    for (const size_t n : sizes) steps_.push_back(MakeStep(&case_, n));
    for (uint32_t i = 0; i < num_rows; ++i) slots_.push_back((i * 7 + 3) % num_rows);
  }

  // Creates the network, its resident rows and its Geo optimizer. Stops at the first error.
  absl::Status Begin(const NetOptions& options) {
    SLUICE_ASSIGN_OR_RETURN(net_, CreateCudaNet(case_.shape(), options));
    GoElsewhere();
    SLUICE_ASSIGN_OR_RETURN(resident_, net_->MakeResidentRows(0, slots_.size()));
    std::vector<const TableLayout*> dense;
    for (size_t i = 1; i < layouts_.size(); ++i) dense.push_back(layouts_[i].get());
    GoElsewhere();
    SLUICE_ASSIGN_OR_RETURN(geo_, net_->MakeGeoOptimizer(dense, {layouts_[0].get()}, 0.5));
    std::vector<const float*> start;
    for (const auto& tensor : case_.dense()) start.push_back(tensor.data());
    GoElsewhere();
    return geo_->SetDense(start);
  }

  // Runs steps of all kinds in turn, on batches of the first `sizes` sizes. Announces each batch
  // before its step when `announced`.
  absl::Status Round(size_t sizes, bool announced) {
    for (size_t i = 0; i < 2 * sizes; ++i) {
      const SharedStep &step = steps_[i % sizes], &next = steps_[(i + 1) % sizes];
      NetInput input = case_.Input(*step);
      const auto train = [&] {
        if (announced) net_->Announce(Coming(case_, next));
        return Train(input);
      };
      SLUICE_RETURN_IF_ERROR(train());
      SLUICE_RETURN_IF_ERROR(InHostMemory(input));
      GoElsewhere();
      SLUICE_RETURN_IF_ERROR(resident_->Write(slots_.data(), slots_.size(), case_.rows().data()));
      input.rows[0].values = nullptr;
      input.rows[0].slots = slots_.data();
      input.rows[0].resident = resident_.get();
      SLUICE_RETURN_IF_ERROR(train());
      SLUICE_RETURN_IF_ERROR(Forward(input));
      input.rows[0].resident = nullptr;
      input.geo = geo_.get();
      SLUICE_RETURN_IF_ERROR(FillRows());
      SLUICE_RETURN_IF_ERROR(train());
      SLUICE_RETURN_IF_ERROR(Update());
    }
    return Exchange();
  }

  DenseNet* net() { return net_.get(); }
  const Results& results() const { return results_; }
  // The number of blocks of the network's host memory that this class itself allocated.
  uint64_t allocations() const { return allocations_; }
  void End() {
    GoElsewhere();
    geo_ = nullptr;
    resident_ = nullptr;
    net_ = nullptr;
  }

 private:
  static TableLayouts Layouts(const WideDeepShape& shape) {
    std::vector<std::vector<uint64_t>> dense;
    for (const size_t n : shape.dense_elements()) dense.push_back({n});
    return GeoLayouts(dense, {GeoRules()[4], GeoRules()[3]}, {1, shape.embedding_dims[0]},
                      GeoRules()[1]);
  }

  void GoElsewhere() const {
    if (elsewhere_ >= 0) (void)cudaSetDevice(elsewhere_);
  }

  absl::Status Forward(const NetInput& input) {
    GoElsewhere();
    results_.emplace_back(input.batch->n);
    return net_->Forward(input, results_.back().data());
  }

  // Runs a step and a forward pass on rows and gradients in the network's host memory, which is
  // freed when this returns.
  absl::Status InHostMemory(NetInput input) {
    HostArray rows, gradient;
    for (HostArray* array : {&rows, &gradient})
      array->Resize(case_.rows().size(), net_->host_memory());
    allocations_ += 2;
    std::copy(case_.rows().begin(), case_.rows().end(), rows.begin());
    input.rows[0].values = rows.data();
    OwnedGradients gradients(case_, input);
    gradients.view.rows = {gradient.data()};
    GoElsewhere();
    SLUICE_RETURN_IF_ERROR(net_->TrainStep(input, 5, 1, &gradients.view));
    results_.emplace_back(gradient.begin(), gradient.end());
    return Forward(input);
  }

  absl::Status Train(const NetInput& input) {
    GoElsewhere();
    OwnedGradients gradients(case_, input);
    SLUICE_RETURN_IF_ERROR(net_->TrainStep(input, 5, 1, &gradients.view));
    results_.push_back({static_cast<float>(gradients.view.loss_sum)});
    if (input.geo != nullptr) return absl::OkStatus();
    results_.push_back(std::move(gradients.rows[0]));
    for (auto& tensor : gradients.dense) results_.push_back(std::move(tensor));
    return absl::OkStatus();
  }

  // Fills all rows the first time, and a few of them again later.
  absl::Status FillRows() {
    const size_t n = updates_ == 0 ? slots_.size() : 5;
    const std::vector<uint8_t> fresh(n, updates_ == 0);
    GoElsewhere();
    return geo_->FillRows(0, {slots_.data(), n}, fresh.data(), case_.rows().data());
  }

  absl::Status Update() {
    const std::vector<uint64_t> counts(slots_.size(), ++updates_);
    GeoUpdate update;
    update.rows.resize(1);
    update.rows[0].slots = slots_.data(), update.rows[0].counts = counts.data();
    update.rows[0].n = slots_.size();
    update.dense_count = updates_, update.schedule_step = updates_;
    GoElsewhere();
    return geo_->Update(update);
  }

  absl::Status Exchange() {
    Results delta = {std::vector<float>(slots_.size() * case_.shape().row_dim(0))};
    for (const auto& tensor : case_.dense()) delta.emplace_back(tensor.size());
    Results server = delta;
    const auto view = [](Results* tensors) {
      GeoExchange exchange;
      exchange.rows = {(*tensors)[0].data()};
      for (size_t i = 1; i < tensors->size(); ++i) exchange.dense.push_back((*tensors)[i].data());
      return exchange;
    };
    GoElsewhere();
    SLUICE_RETURN_IF_ERROR(geo_->TakeDelta({{slots_.data(), slots_.size()}}, view(&delta)));
    for (size_t t = 0; t < delta.size(); ++t)
      for (size_t i = 0; i < delta[t].size(); ++i) server[t][i] = 0.5f * delta[t][i] + 0.1f;
    results_.insert(results_.end(), delta.begin(), delta.end());
    GoElsewhere();
    return geo_->Merge({{slots_.data(), slots_.size()}}, view(&delta), view(&server));
  }

  NetCase case_;
  const TableLayouts layouts_;
  const int elsewhere_;
  std::vector<SharedStep> steps_;
  std::vector<uint32_t> slots_;  // the slot of row i
  std::unique_ptr<DenseNet> net_;
  std::unique_ptr<ResidentRows> resident_;
  std::unique_ptr<GeoOptimizer> geo_;
  uint64_t updates_ = 0, allocations_ = 0;
  Results results_;
};

// Expects that no memory or handle of any device is left.
inline void ExpectEverythingIsGivenBack() {
  World& world = World::Get();
  for (int device = 0; device < world.devices(); ++device)
    EXPECT_EQ(world.memory().used(device), 0u) << "device " << device;
  EXPECT_EQ(world.memory().blocks(MemoryKind::kDevice), 0u);
  EXPECT_EQ(world.memory().blocks(MemoryKind::kPinned), 0u);
  EXPECT_EQ(world.handles(), 0);
}

}  // namespace sluice::cuda::simulated
