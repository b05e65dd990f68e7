// The steps that the ranks of a job report: for its curves, and for operators who follow it.
//
// Memory: the newest kRecent steps are kept for operators (230 KB), and those that StepCurves
// keeps.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "proto/scheduler.pb.h"
#include "scheduler/step_curves.h"

namespace sluice {

class StepReports {
 public:
  static constexpr size_t kRecent = 4096;

  explicit StepReports(uint32_t worker_num) : newest_(worker_num), curves_(worker_num) {}

  // Adds the losses that `rank` has not reported before: it sends a report again when it got no
  // answer, also when only the answer was lost. REQUIRES: rank < worker_num.
  void Add(uint32_t rank, const WorkerProgress& progress);
  // Points of the curves that are complete, once each; with `all` also the incomplete ones.
  std::vector<Scalar> TakePoints(bool all) { return curves_.Take(all); }
  // The steps reported after the first `seen`, as far as they are kept.
  void AddTo(uint64_t seen, WatchJobReply* reply) const;
  // Keeps the number of the steps, and no step.
  void DropSteps();

 private:
  std::vector<uint64_t> newest_;  // by rank: the newest step that it has reported
  StepCurves curves_;
  std::deque<StepLoss> recent_;
  uint64_t count_ = 0;  // of all steps that were reported
};

}  // namespace sluice
