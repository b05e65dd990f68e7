// InputDevice on the host. Uploads and sorts run at the latest moment that the calls allow, or at
// once, beside the work under way. This exposes missing waits and writes that come too early.
#pragma once

#include <algorithm>
#include <array>
#include <climits>
#include <deque>
#include <functional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "model/wide_deep/cuda/step_inputs.h"
#include "model/wide_deep/cuda/step_program.h"

namespace sluice::cuda {

enum class Pace { kLate, kAtOnce };

// Ops runs the sort.
template <typename Ops>
class HostInputDevice : public InputDevice {
 public:
  // `program` must outlive this object. limit: most bytes of both blocks together.
  HostInputDevice(const StepProgram* program, Pace pace, size_t limit = SIZE_MAX)
      : program_(*program), pace_(pace), limit_(limit) {}
  ~HostInputDevice() override { RunAll(); }

  // Gives new memory full of garbage each time: NaN as a float, far out of range as an index.
  absl::Status Reserve(size_t block, size_t up_bytes, size_t bytes) override {
    EXPECT_FALSE(InUse(block)) << "block " << block << " is in use";
    if (bytes + blocks_[1 - block].data.size() > limit_) {
      blocks_[block] = {};
      ++refused;
      return absl::ResourceExhaustedError(absl::StrCat(bytes, " bytes do not fit"));
    }
    blocks_[block] = {std::vector<char>(up_bytes, char(0xFF)),
                      std::vector<char>(bytes, char(0xFF))};
    return absl::OkStatus();
  }
  void Release(size_t block) override {
    EXPECT_FALSE(InUse(block)) << "block " << block << " is in use";
    blocks_[block] = {};
  }
  char* pinned(size_t block) const override {
    return const_cast<char*>(blocks_[block].pinned.data());
  }
  char* data(size_t block) const override { return const_cast<char*>(blocks_[block].data.data()); }
  absl::Status Upload(size_t block, const Piece& piece) override {
    up_.push_back({block, 0, [this, block, piece] {
                     std::copy(pinned(block) + piece.begin, pinned(block) + piece.end,
                               data(block) + piece.begin);
                   }});
    return Pushed();
  }
  bool Reaches(const void*, size_t) const override { return reaches; }
  absl::Status UploadFrom(size_t block, const void* from, size_t to, size_t bytes) override {
    ++reached;
    const char* const begin = static_cast<const char*>(from);
    up_.push_back({block, 0, [this, block, begin, to, bytes] {
                     std::copy_n(begin, bytes, data(block) + to);
                   }});
    return Pushed();
  }
  absl::Status Index(size_t block, const StepShape& shape) override {
    ++indexed;
    index_.push_back({block, ups_ + up_.size(), [this, block, shape] {
                        Ops ops;
                        program_.Index(shape, data(block), &ops);
                      }});
    return indexed >= fail_from ? absl::InternalError("no sort") : Pushed();
  }
  absl::Status HoldBack(size_t block) override {
    RunUploads(up_.size());
    while (InQueue(index_, block)) RunIndex();
    return absl::OkStatus();
  }
  absl::Status Wait() override {
    RunAll();
    return absl::OkStatus();
  }

  size_t bytes(size_t block) const { return blocks_[block].data.size(); }
  bool reaches = false;     // callers' memory is pinned
  int reached = 0;          // calls of UploadFrom
  int refused = 0;          // calls of Reserve
  int indexed = 0;          // calls of Index
  int fail_from = INT_MAX;  // calls of Index from this one on fail after beginning the sort

 private:
  struct Block {
    std::vector<char> pinned, data;
  };
  struct Work {
    size_t block;
    size_t after;  // a sort runs after this many uploads
    std::function<void()> run;
  };

  static bool InQueue(const std::deque<Work>& queue, size_t block) {
    for (const Work& work : queue) {
      if (work.block == block) return true;
    }
    return false;
  }
  bool InUse(size_t block) const { return InQueue(up_, block) || InQueue(index_, block); }
  absl::Status Pushed() {
    if (pace_ == Pace::kAtOnce) RunAll();
    return absl::OkStatus();
  }
  void RunUploads(size_t n) {
    for (; n > 0; --n, ++ups_) {
      up_.front().run();
      up_.pop_front();
    }
  }
  void RunIndex() {
    const Work work = index_.front();
    if (work.after > ups_) RunUploads(work.after - ups_);
    work.run();
    index_.pop_front();
  }
  void RunAll() {
    RunUploads(up_.size());
    while (!index_.empty()) RunIndex();
  }

  const StepProgram& program_;
  const Pace pace_;
  const size_t limit_;
  std::array<Block, 2> blocks_;
  std::deque<Work> up_, index_;
  size_t ups_ = 0;  // uploads that have run
};

}  // namespace sluice::cuda
