// Loss and speed by step as two curves: the mean loss and the summed speed over the ranks that
// report a step.
//
// A rank reports a step with its speed since its last report in that epoch. A step gets a point of
// the speed only when every rank has reported it, so a sum never lacks a rank.
//
// Memory: at most kOpenSteps steps wait for slower ranks; beyond that the oldest are handed out
// incomplete.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "proto/scheduler.pb.h"
#include "scheduler/output_action.h"

namespace sluice {

class StepCurves {
 public:
  static constexpr size_t kOpenSteps = 4096;

  explicit StepCurves(uint32_t worker_num) : worker_num_(worker_num) {}
  // From now on so many ranks report a step. REQUIRES: all points were taken.
  void SetWorkers(uint32_t worker_num) { worker_num_ = worker_num; }
  void Add(const StepLoss& loss);
  // Returns the complete points, each once; with `all` also the incomplete ones.
  std::vector<Scalar> Take(bool all);

 private:
  struct Open {
    double loss_sum = 0;
    double speed = 0;
    uint32_t ranks = 0;
    uint32_t with_speed = 0;
  };
  using OpenSteps = std::map<uint64_t, Open>;
  void Close(OpenSteps::iterator step);

  uint32_t worker_num_;
  OpenSteps open_;
  std::vector<Scalar> points_;  // since the last Take
};

}  // namespace sluice
