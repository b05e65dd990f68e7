// Leads a running job from phase to phase, driven by the reports of its ranks.
//
// A JobRun knows ranks, but no members, addresses or queues. A report that makes it impossible to
// go on sets failure(); the owner decides what happens then.
//
// Invariants: a repeated report changes nothing.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "scheduler/data_tasks.h"
#include "scheduler/job_phases.h"
#include "scheduler/job_results.h"
#include "scheduler/output_action.h"
#include "scheduler/seen_files.h"

namespace sluice {

class JobRun {
 public:
  // `config` is effective and outlives the run.
  JobRun(const JobConfig* config, uint32_t worker_num, absl::Time now, std::string save_id = "");

  // Takes a rank's report that a phase has ended. True when the next phase begins. Not OK: the
  // report is refused and changes nothing. REQUIRES: rank < worker_num.
  absl::StatusOr<bool> TakeReport(uint32_t rank, const PhaseReport& report, absl::Time now);
  const absl::Status& failure() const { return failure_; }

  // True when there is a phase for this rank to do.
  bool PhaseReady(uint32_t rank) const { return !phases_.Ended(rank); }
  const JobPhases& phases() const { return phases_; }

  // FAILED_PRECONDITION outside the training phase of request.epoch.
  absl::StatusOr<NextTaskReply> NextTask(const NextTaskRequest& request);

  const JobResult& result() const { return results_.result(); }
  // Examples of an epoch; 0: not known yet. Sync knows them once the data is counted (malformed
  // lines included), other modes after the first epoch.
  uint64_t examples_expected() const { return examples_expected_; }
  // Frees what only the phases need, once the job is over. Phases and result stay.
  void DropWork();
  // Returns the curve points of ended epochs, each once.
  std::vector<Scalar> TakeScalars();

 private:
  void BeginPhase(absl::Time now);
  absl::Status TakeContent(uint32_t rank, const PhaseReport& report);
  // Sets failure_ when the job cannot go on.
  void EndPhase(absl::Time now);
  absl::Status EndIndex();
  absl::Status EndSyncIndex();
  absl::Status EndTrain(absl::Time now);
  // FAILED_PRECONDITION when the epoch trained nothing.
  absl::Status CheckTrained(const EpochResult& epoch) const;
  absl::Status EndEval();
  bool sync() const { return mode_ == Mode::kSync; }

  const JobConfig& config_;
  const uint32_t worker_num_;
  const Mode mode_;
  const std::string save_id_;  // Phase.save_id
  JobPhases phases_;
  JobResults results_;
  SeenFiles seen_;                  // the data files that all ranks see
  std::vector<IndexReport> index_;  // by rank, until INDEX has ended; without the files seen
  std::optional<DataTasks> tasks_;  // async and Geo, from the end of INDEX
  DataPieces pieces_;               // sync with GLOBAL, between INDEX and the first TRAIN
  uint64_t steps_per_epoch_ = 0;    // sync
  uint64_t first_step_ = 0;         // sync: first step of the next epoch
  uint64_t examples_expected_ = 0;
  std::vector<Scalar> scalars_;
  absl::Status failure_;
};

}  // namespace sluice
