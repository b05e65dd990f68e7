// A TableDevice on the host: the launches of table_kernels.cu on the emulated device, blocks of
// host memory. New memory is full of garbage and addresses change when a block grows, so that what
// is read before it is written, or where it was, shows.
#pragma once

#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/model/cuda/emulated_ops.h"
#include "tests/model/cuda/host_net.h"

namespace sluice::cuda {

class EmulatedTableOps : public TableOps {
 public:
  void Fill(const FillArgs& args) override { emulated::LaunchFill(nullptr, args); }
  void Delta(const DeltaArgs& args) override { emulated::LaunchDelta(nullptr, args); }
  void Merge(const MergeArgs& args) override { emulated::LaunchMerge(nullptr, args); }
  void Scales(const UpdateArgs& args) override { emulated::LaunchScales(nullptr, args); }
  void Update(const UpdateArgs& args) override { emulated::LaunchUpdate(nullptr, args); }
  void Squares(const SquaresArgs& args) override { emulated::LaunchSquares(nullptr, args); }
  void Norm(const NormArgs& args) override { emulated::LaunchNorm(nullptr, args); }
};

class EmulatedBlock : public TableBlock {
 public:
  explicit EmulatedBlock(size_t limit) : limit_(limit) {}
  char* data() const override { return memory_ == nullptr ? nullptr : memory_->data(); }
  size_t capacity() const override { return memory_ == nullptr ? 0 : memory_->size(); }
  absl::Status Reserve(size_t bytes, bool keep) override {
    if (bytes <= capacity()) return absl::OkStatus();
    if (bytes > limit_) return absl::ResourceExhaustedError(absl::StrCat("limit ", limit_));
    auto grown = std::make_unique<std::vector<char>>(bytes, char(0xFF));
    if (keep && memory_ != nullptr) std::copy(memory_->begin(), memory_->end(), grown->begin());
    memory_ = std::move(grown);
    return absl::OkStatus();
  }

 private:
  const size_t limit_;
  std::unique_ptr<std::vector<char>> memory_;
};

class EmulatedTableDevice : public TableDevice {
 public:
  // limit: bytes of any block.
  explicit EmulatedTableDevice(size_t limit = SIZE_MAX) : limit_(limit) {}
  std::unique_ptr<TableBlock> NewBlock(const char*) override {
    return std::make_unique<EmulatedBlock>(limit_);
  }
  absl::Status Run(size_t bytes, absl::FunctionRef<void(char*)> fill,
                   absl::FunctionRef<void(const char*, TableOps*)> launch) override {
    std::vector<char> pinned(bytes, char(0xFF));
    fill(pinned.data());
    const std::vector<char> there = pinned;
    EmulatedTableOps ops;
    launch(there.data(), &ops);
    return absl::OkStatus();
  }
  absl::Status Download(const char* from, size_t bytes,
                        absl::FunctionRef<void(const char*)> take) override {
    const std::vector<char> here(from, from + bytes);
    take(here.data());
    return absl::OkStatus();
  }

 private:
  const size_t limit_;
};

// The CUDA backend on the emulated device, with what stays there.
class EmulatedNet : public StepNet<EmulatedOps> {
 public:
  explicit EmulatedNet(WideDeepShape shape, Element element = Element::kF32, double loss_scale = 1)
      : StepNet(std::move(shape), element, loss_scale) {
    table_device = [] { return std::make_unique<EmulatedTableDevice>(); };
  }
};

}  // namespace sluice::cuda
