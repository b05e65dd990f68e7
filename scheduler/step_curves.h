// Loss and speed by step as two curves: the mean loss and the summed speed over the ranks that
// report a step.
//
// A rank reports a step with the speed of its steps since its last report in that epoch. So a point
// of the speed is real, and a step that not every rank has reported has none.
//
// Memory: at most kOpenSteps steps wait for slower ranks; then the oldest are given out as they
// are.
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
  void Add(const StepLoss& loss);
  // Points that are complete, once each; with `all` also those that still wait.
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

  const uint32_t worker_num_;
  OpenSteps open_;
  std::vector<Scalar> points_;  // since the last Take
};

}  // namespace sluice
