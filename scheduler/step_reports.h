// Collects the steps that a job's ranks report, for its curves and for operators who follow it.
//
// Memory: the newest kRecent steps (230 KB) for operators, and the open steps of StepCurves.
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

  // Adds the losses that `rank` has not reported before. A rank that gets no answer sends its
  // report again, even if the report had arrived. REQUIRES: rank < worker_num.
  void Add(uint32_t rank, const WorkerProgress& progress);
  // Returns the complete points of the curves, each once; with `all` also the incomplete ones.
  std::vector<Scalar> TakePoints(bool all) { return curves_.Take(all); }
  // Adds the steps reported after the first `seen`, except those no longer kept.
  void AddTo(uint64_t seen, WatchJobReply* reply) const;
  // The job's next attempt begins at an earlier step, with this many ranks.
  void Restart(uint32_t worker_num);
  // Drops the steps and keeps only their number.
  void DropSteps();

 private:
  std::vector<uint64_t> newest_;  // by rank: the newest step that it has reported
  StepCurves curves_;
  std::deque<StepLoss> recent_;
  uint64_t count_ = 0;  // all steps ever reported
};

}  // namespace sluice
