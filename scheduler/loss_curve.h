// The loss by step as one curve: the mean over the ranks that report a step.
//
// Memory: at most kOpenSteps steps wait for slower ranks; then the oldest are given out as they
// are. Thread safety: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "proto/scheduler.pb.h"
#include "scheduler/job_run.h"

namespace sluice {

class LossCurve {
 public:
  static constexpr size_t kOpenSteps = 4096;

  explicit LossCurve(uint32_t worker_num) : worker_num_(worker_num) {}
  void Add(const StepLoss& loss);
  // Points that are complete, ascending; with `all` also those that still wait.
  std::vector<Scalar> Take(bool all);

 private:
  struct Open {
    double sum = 0;
    uint32_t ranks = 0;
  };
  const uint32_t worker_num_;
  std::map<uint64_t, Open> open_;
};

}  // namespace sluice
