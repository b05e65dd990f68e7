// A TableDevice on the host: the kernels of table_kernels.cu on the emulated device, with blocks of
// host memory. New memory is full of garbage, and addresses change when a block grows. This exposes
// reads of memory that was not written or has moved.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/model/wide_deep/cuda/emulated_ops.h"
#include "tests/model/wide_deep/cuda/host_net.h"

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

// The memory of one device, in bytes.
struct EmulatedMemory {
  size_t limit = SIZE_MAX;  // most that the network may use
  size_t there = SIZE_MAX;  // most that the device has, which may be less or more than the limit
  size_t used = 0;
  // Others take this much as soon as a block is freed.
  size_t taken_when_freed = 0;
};

// Grows as CudaTableBlock does.
class EmulatedBlock : public TableBlock {
 public:
  explicit EmulatedBlock(std::shared_ptr<EmulatedMemory> memory) : memory_(std::move(memory)) {}
  char* data() const override { return block_ == nullptr ? nullptr : block_->data(); }
  size_t capacity() const override { return block_ == nullptr ? 0 : block_->size(); }
  absl::Status Reserve(size_t bytes, bool keep) override {
    if (bytes <= capacity()) return absl::OkStatus();
    const size_t others = memory_->used - capacity();
    if (bytes > memory_->limit || others > memory_->limit - bytes) {
      if (!keep) Free();
      return absl::ResourceExhaustedError(absl::StrCat("limit ", memory_->limit));
    }
    const size_t held = capacity();
    std::unique_ptr<std::vector<char>> old = std::move(block_);
    if (!keep || old == nullptr) {
      FreeBytes(held);
      return Allocate(bytes);
    }
    // If old and new do not fit side by side, the contents pass through the host's memory.
    const size_t both = std::min(memory_->limit, memory_->there);
    if (memory_->used <= both && bytes <= both - memory_->used) {
      memory_->used -= held;
    } else {
      FreeBytes(held);
    }
    const absl::Status grown = Allocate(bytes);
    if (!grown.ok() && !Allocate(held).ok()) return absl::DataLossError("the device has no more");
    std::copy(old->begin(), old->end(), block_->begin());
    return grown;
  }

 private:
  void FreeBytes(size_t bytes) {
    memory_->used -= bytes;
    if (bytes > 0) memory_->there -= std::min(memory_->there, memory_->taken_when_freed);
  }
  void Free() {
    FreeBytes(capacity());
    block_ = nullptr;
  }
  absl::Status Allocate(size_t bytes) {
    if (memory_->used > memory_->there || bytes > memory_->there - memory_->used)
      return absl::ResourceExhaustedError("the device has no more");
    memory_->used += bytes;
    block_ = std::make_unique<std::vector<char>>(bytes, char(0xFF));
    return absl::OkStatus();
  }

  const std::shared_ptr<EmulatedMemory> memory_;  // shared by all blocks
  std::unique_ptr<std::vector<char>> block_;
};

class EmulatedTableDevice : public TableDevice {
 public:
  explicit EmulatedTableDevice(
      std::shared_ptr<EmulatedMemory> memory = std::make_shared<EmulatedMemory>())
      : memory_(std::move(memory)) {}
  std::unique_ptr<TableBlock> NewBlock(const char*) override {
    return std::make_unique<EmulatedBlock>(memory_);
  }
  size_t BytesLeft() const override {
    const size_t left = std::min(memory_->limit, memory_->there);
    return left - std::min(left, memory_->used);
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
  const std::shared_ptr<EmulatedMemory> memory_;
};

// The CUDA backend on the emulated device, with resident rows and Geo's values.
class EmulatedNet : public StepNet<EmulatedOps> {
 public:
  explicit EmulatedNet(WideDeepShape shape, Element element = Element::kF32, double loss_scale = 1)
      : StepNet(std::move(shape), element, loss_scale) {
    table_device = [] { return std::make_unique<EmulatedTableDevice>(); };
  }
};

}  // namespace sluice::cuda
