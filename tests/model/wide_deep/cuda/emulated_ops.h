// StepOps that launch the .cu files' kernels on the emulated device (emulated_device.h).
#pragma once

#define SLUICE_KERNEL_NAMESPACE emulated
#include "model/net/cuda/table_launches.h"
#include "model/wide_deep/cuda/kernels.h"
#include "tests/model/wide_deep/cuda/host_ops.h"

namespace sluice::cuda {

class EmulatedOps : public HostOps {
 public:
  void ExpandCells(const BatchView& batch, uint32_t num_slots, uint32_t rows,
                   uint32_t* cells) override {
    emulated::LaunchExpandCells(nullptr, batch, num_slots, rows, cells);
  }
  void SortPass(const SortArgs& args) override { emulated::LaunchSortPass(nullptr, args); }
  void FindRows(const StepHeader* header, const uint32_t* sorted_rows, uint32_t rows,
                uint32_t* row_begin) override {
    emulated::LaunchFindRows(nullptr, header, sorted_rows, rows, row_begin);
  }
  void ConvertWeights(Element element, const float* weights, uint32_t in, uint32_t out, uint32_t ld,
                      void* to, uint32_t* overflow) override {
    emulated::LaunchConvertWeights(nullptr, element, weights, in, out, ld, to, overflow);
  }
  void Gather(Element element, const NetView& net, const BatchView& batch, uint32_t rows,
              uint32_t ld, void* to, uint32_t* overflow) override {
    emulated::LaunchGather(nullptr, element, net, batch, rows, ld, to, overflow);
  }
  void BiasRelu(Element element, const BiasReluArgs& args) override {
    emulated::LaunchBiasRelu(nullptr, element, args);
  }
  void Logits(Element element, const NetView& net, const BatchView& batch,
              const LogitArgs& args) override {
    emulated::LaunchLogits(nullptr, element, net, batch, args);
  }
  void OutputBackwardSums(Element element, const BackwardArgs& args) override {
    emulated::LaunchOutputBackward(nullptr, element, args);
  }
  void HiddenBackwardSums(Element element, const BackwardArgs& args) override {
    emulated::LaunchHiddenBackward(nullptr, element, args);
  }
  void WideSums(const WideArgs& args) override { emulated::LaunchWideSums(nullptr, args); }
  void RowGradients(const NetView& net, const BatchView& batch, const RowGradientView& view,
                    uint32_t keys, uint32_t rows) override {
    emulated::LaunchRowGradients(nullptr, net, batch, view, keys, rows);
  }
};

}  // namespace sluice::cuda
