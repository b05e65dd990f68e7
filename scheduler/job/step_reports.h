// Collects the steps that a job's ranks report, for its curves and for operators who follow it.
//
// Memory: the newest kRecent steps (230 KB; up to 10 MB with what programs log) for operators. At
// most kOpenSteps steps of the curves wait for slower ranks; beyond that the oldest are handed out
// incomplete. A report has at most kMaxListed steps (request_text.h), so that is how many points
// wait to be taken.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "proto/scheduler.pb.h"
#include "scheduler/job/output_action.h"

namespace sluice {

// Loss and speed by step as two curves: the mean loss and the summed speed over the ranks that
// report a step. Each name that programs log is another curve, "train/NAME": the mean over the
// ranks that have logged it.
//
// A rank reports a step with its speed since its last report in that epoch. A step gets a point of
// the speed only when every rank has reported it, so a sum never lacks a rank.
//
// The first kStepsOfAStride steps are all drawn, then as many of every second one, of every fourth
// one, and so on: n steps get about kStepsOfAStride x log2(n / kStepsOfAStride) points. So the
// curve of a long job keeps its end, and no worker fills the disk with steps.
class StepCurves {
 public:
  static constexpr size_t kOpenSteps = 4096;
  static constexpr uint64_t kStepsOfAStride = 500'000;

  explicit StepCurves(uint32_t worker_num, uint64_t steps_of_a_stride = kStepsOfAStride)
      : steps_of_a_stride_(steps_of_a_stride), worker_num_(worker_num) {}
  // From now on this many ranks report a step.
  // REQUIRES: all points were taken.
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
    struct Logged {
      double sum = 0;
      uint32_t ranks = 0;
    };
    std::map<std::string, Logged> logged;
  };
  using OpenSteps = std::map<uint64_t, Open>;
  void Close(OpenSteps::iterator step);

  const uint64_t steps_of_a_stride_;
  uint32_t worker_num_;
  OpenSteps open_;
  // Every stride_-th step that closes is drawn.
  uint64_t closed_ = 0, drawn_ = 0, stride_ = 1;
  std::vector<Scalar> points_;  // since the last Take
};

class StepReports {
 public:
  static constexpr size_t kRecent = 4096;

  explicit StepReports(uint32_t worker_num) : newest_(worker_num), curves_(worker_num) {}

  // Adds the losses that `rank` has not reported before. A rank that gets no answer sends its
  // report again, even if the report had arrived.
  // REQUIRES: rank < worker_num.
  void Add(uint32_t rank, const google::protobuf::RepeatedPtrField<StepLoss>& losses);
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
