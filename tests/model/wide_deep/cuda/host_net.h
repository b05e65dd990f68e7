// The CUDA backend's step on the host. Blocks of input, staging, layouts, program and kernel
// functions are those of the device; HostOps runs them. Blocks begin full of garbage, which exposes
// reads before writes. An announced batch is uploaded in the middle of a step.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "common/base/status_macros.h"
#include "model/wide_deep/cuda/device_geo_optimizer.h"
#include "model/wide_deep/cuda/device_resident_rows.h"
#include "model/wide_deep/cuda/one_table.h"
#include "model/wide_deep/cuda/step_program.h"
#include "tests/model/wide_deep/cuda/host_inputs.h"
#include "tests/model/wide_deep/cuda/host_ops.h"

namespace sluice::cuda {

// Ops is HostOps, or another class that runs the kernels.
template <typename Ops>
class StepNet : public DenseNet {
 public:
  explicit StepNet(WideDeepShape shape, Element element = Element::kF32, double loss_scale = 1,
                   Pace pace = Pace::kLate, size_t input_limit = SIZE_MAX)
      : shape_(std::move(shape)),
        constants_(ConstantLayout(shape_).total),
        loss_scale_(loss_scale),
        program_((FillConstants(shape_, constants_.data()), shape_),
                 ViewOf(shape_, constants_.data()), element, false),
        device_(&program_, pace, input_limit),
        inputs_(shape_, program_.plan(), 1, &device_) {}

  void Announce(ComingBatch next) override { inputs_.Announce(std::move(next)); }
  absl::Status TrainStep(const NetInput& input, uint64_t seed, uint32_t epoch,
                         NetGradients* gradients) override {
    left_.present = false;
    SLUICE_ASSIGN_OR_RETURN(const OnDevice values, ValuesOnDevice(input));
    SLUICE_RETURN_IF_ERROR(inputs_.Begin(input, /*training=*/true));
    SLUICE_ASSIGN_OR_RETURN(const StepShape shape,
                            Stage(input, values, Dropout(shape_.dropout, seed, epoch)));
    gradients->skipped = false;
    gradients->weight_sum = SumOfWeights(*input.batch);
    Ops ops;
    const OutputLayout out(program_.plan(), shape);
    for (size_t part = 0; part < program_.train_parts(); ++part) {
      program_.Train(part, shape, memory(values.dense), &ops);
      if (part == 0) inputs_.BringNext();
      const int tensor = program_.FinalAfter(part);
      if (tensor < 0 || input.geo != nullptr) continue;
      ReadTensor(program_.plan(), out, output_.data(), tensor, 1, gradients);
      if (gradients->ready) gradients->ready(tensor);
    }
    StepResult result;
    std::memcpy(&result, output_.data() + out.result, sizeof result);
    gradients->loss_sum = result.loss_sum;
    gradients->skipped = result.overflow != 0;
    if (input.geo != nullptr) {
      LeaveGradients(out, RowsOf(input).n);
      return absl::OkStatus();
    }
    ReadGradients(program_.plan(), out, output_.data(), RowsOf(input).n,
                  static_cast<float>(1 / loss_scale_), /*early=*/loss_scale_ != 1, 2, gradients);
    return absl::OkStatus();
  }

  absl::Status Forward(const NetInput& input, float* logits) override {
    SLUICE_ASSIGN_OR_RETURN(const OnDevice values, ValuesOnDevice(input));
    SLUICE_RETURN_IF_ERROR(inputs_.Begin(input, /*training=*/false));
    SLUICE_ASSIGN_OR_RETURN(const StepShape shape, Stage(input, values, Dropout()));
    Ops ops;
    program_.Forward(shape, memory(values.dense), &ops);
    const char* const at = output_.data() + OutputLayout(program_.plan(), shape).logits;
    std::copy_n(reinterpret_cast<const float*>(at), input.batch->n, logits);
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<ResidentRows>> MakeResidentRows(size_t, size_t capacity) override {
    return DeviceResidentRows::Create(table_device(), capacity, shape_.row_dim(0));
  }
  absl::StatusOr<std::unique_ptr<GeoOptimizer>> MakeGeoOptimizer(
      const std::vector<const TableLayout*>& dense, const std::vector<const TableLayout*>& sparse,
      double clip_global_norm) override {
    return DeviceGeoOptimizer::Create(program_.plan(), dense, OnlyTable(sparse), clip_global_norm,
                                      table_device(), &left_);
  }

  DeviceStats device_stats() const override {
    DeviceStats stats;
    stats.steps_ahead = inputs_.steps_ahead();
    stats.no_room_ahead = inputs_.alone();
    return stats;
  }
  HostInputDevice<Ops>& input_device() { return device_; }

  // Makes the device of resident rows and of Geo's values.
  std::function<std::unique_ptr<TableDevice>()> table_device;

 private:
  void LeaveGradients(const OutputLayout& out, size_t num_rows) {
    left_.present = true;
    left_.rows = reinterpret_cast<const float*>(output_.data() + out.rows);
    left_.num_rows = num_rows;
    left_.dense.clear();
    for (const size_t at : out.dense)
      left_.dense.push_back(reinterpret_cast<const float*>(output_.data() + at));
    left_.factor = static_cast<float>(1 / loss_scale_);
  }
  // Adds the values of a step to its batch, and makes room for its work and output.
  absl::StatusOr<StepShape> Stage(const NetInput& input, const OnDevice& values,
                                  const Dropout& dropout) {
    const NetPlan& plan = program_.plan();
    const StepShape shape = ShapeOf(*input.batch, RowsOf(input).n);
    work_.assign(WorkLayout(plan, shape, program_.element()).total, char(0xFF));
    output_.assign(OutputLayout(plan, shape).total, char(0xFF));
    SLUICE_RETURN_IF_ERROR(inputs_.AddValues(
        input, MakeHeader(input, values.rows, dropout, SumOfWeights(*input.batch), loss_scale_)));
    return shape;
  }
  StepMemory memory(const char* dense) {
    return {inputs_.data(), work_.data(), output_.data(), dense};
  }

  const WideDeepShape shape_;
  std::vector<char> constants_;
  const double loss_scale_;
  const StepProgram program_;
  HostInputDevice<Ops> device_;
  StepInputs inputs_;
  std::vector<char> work_, output_;
  DeviceGradients left_;
};

using HostNet = StepNet<HostOps>;

}  // namespace sluice::cuda
