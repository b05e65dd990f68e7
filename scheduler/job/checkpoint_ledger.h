// Keeps a job's checkpoints: the machine that makes them (JobCheckpoints, from the first run on),
// what the members were told last, and which checkpoints cannot be used.
//
// Thread safety: one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/scheduler.pb.h"
#include "scheduler/job/job_checkpoints.h"

namespace sluice {

class CheckpointLedger {
 public:
  // Null before the first run, and for a job that makes no checkpoints.
  JobCheckpoints* checkpoints() { return checkpoints_ ? &*checkpoints_ : nullptr; }
  const JobCheckpoints* checkpoints() const { return checkpoints_ ? &*checkpoints_ : nullptr; }
  // The figures of the job's checkpoints, including those made under earlier schedulers.
  CheckpointStatus status() const { return checkpoints_ ? checkpoints_->status() : before_; }
  // Damaged checkpoints that were passed over, by their save_ids: they do not count towards `keep`.
  const std::vector<std::string>& damaged() const { return damaged_; }
  // Why the newest checkpoint of an adopted attempt cannot be read. The job must not silently go
  // back past it; a newer one makes this OK.
  const absl::Status& newest_unusable() const { return newest_unusable_; }

  // Begins to make checkpoints, after those of earlier schedulers.
  void Begin(JobCheckpoints::Options options, absl::Time now);
  void RestoreStatus(CheckpointStatus before) { before_ = std::move(before); }
  void PassOver(const std::vector<std::string>& damaged);
  void SetNewestUnusable(absl::Status why) { newest_unusable_ = std::move(why); }

  // True when the members were not told yet what is asked, over or ordered now.
  // REQUIRES: checkpoints().
  bool asks_news() const { return !(checkpoints_->asked() == told_asked_); }
  bool over_is_news() const { return checkpoints_->over() != told_over_; }
  bool orders_news() const { return !(checkpoints_->ordered() == told_ordered_); }
  // The highest number that a member may have been told of.
  // REQUIRES: checkpoints().
  uint64_t most_told() const {
    return std::max({most_told_, checkpoints_->open_number(), checkpoints_->over()});
  }
  // The last request was for parts of a cut by order.
  bool told_by_order() const { return told_asked_.by_order; }
  // The members are told what is asked and ordered now.
  // REQUIRES: checkpoints().
  void ToldWorkers() {
    told_asked_ = checkpoints_->asked();
    most_told_ = std::max(most_told_, told_asked_.number);
  }
  void ToldPservers();
  // The pservers know from an earlier scheduler which checkpoints are over.
  void ToldOver() { told_over_ = checkpoints_->over(); }

  void Archive() { checkpoints_.reset(); }

 private:
  std::optional<JobCheckpoints> checkpoints_;
  CheckpointStatus before_;  // under earlier schedulers (JobRecord.checkpoints)
  std::vector<std::string> damaged_;
  absl::Status newest_unusable_;
  JobCheckpoints::Asked told_asked_;
  JobCheckpoints::Ordered told_ordered_;
  uint64_t told_over_ = 0;
  uint64_t most_told_ = 0;  // to ranks
};

}  // namespace sluice
