// Leads a running job from phase to phase, driven by the reports of its ranks.
//
// A JobRun knows ranks, but no members, addresses or queues. A report that makes it impossible to
// continue sets failure(); the owner decides what happens then.
//
// Invariants: a repeated report changes nothing.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/config/mode.h"
#include "proto/state.pb.h"
#include "scheduler/job/data_tasks.h"
#include "scheduler/job/early_ending.h"
#include "scheduler/job/indexed_data.h"
#include "scheduler/job/job_phases.h"
#include "scheduler/job/job_results.h"
#include "scheduler/job/output_action.h"
#include "scheduler/job/resume_point.h"

namespace sluice {

// The frames of one rank that the pservers hold together when its life is over.
struct HeldOfRank {
  RankPosition least, most;  // what all shards hold, and one that no pserver is ahead of
  RankPosition committed;    // sync: at the pserver with the rank's newest commit
};

class JobRun {
 public:
  struct Options {
    const JobConfig* config = nullptr;  // effective; outlives the run
    uint32_t worker_num = 1;
    uint64_t instance = 0;      // JobSpec.instance
    std::string save_id;        // Phase.save_id
    uint64_t global_batch = 0;  // sync: examples of a global step; 0: as the job says
    // The run continues from here; null: from the beginning. Outlives the run.
    const ResumePoint* resume = nullptr;
    bool ranks_close_steps = false;     // RanksCloseSteps (member_loss.h)
    std::optional<EarlyEnd> early_end;  // as in EndEarly
  };
  JobRun(const Options& options, absl::Time now);
  JobRun(const JobConfig* config, uint32_t worker_num, absl::Time now)
      : JobRun(Options{config, worker_num, 0, "", 0, nullptr, false, std::nullopt}, now) {}

  // The state of the run without the reports of INDEX. To be called when a phase has just begun.
  RunState Save() const;
  // Continues a saved run of the same job from the beginning of `phase`. `same_clock`: the times in
  // `state` are of this run's clock. DATA_LOSS: there is no such phase, or the reports do not lead
  // to it.
  // REQUIRES: a new run that has taken the same reports of INDEX.
  absl::Status Restore(uint64_t phase, const RunState& state, bool same_clock, absl::Time now);

  // Takes a rank's report that a phase has ended. True when the next phase begins. Not OK: the
  // report is refused and changes nothing.
  // REQUIRES: rank < worker_num.
  absl::StatusOr<bool> TakeReport(uint32_t rank, const PhaseReport& report, absl::Time now);
  const absl::Status& failure() const { return failure_; }

  // Async and Geo: while held, a training phase that all ranks have ended does not end.
  void Hold(bool hold) { hold_ = hold; }
  // True when all ranks have ended a training phase, which is the present one.
  bool ended_training() const;
  // Begins the next phase if the present one was held and is not any more. True when the next
  // phase begins; see failure().
  bool TryAdvance(absl::Time now);

  // The user's program ends the job. Sync: training ends after global step end.last_step, in the
  // phase that has it. Async: the present training phase ends, or the next one if none is under
  // way. Evaluation and the model follow.
  void EndEarly(const EarlyEnd& end);
  // As EarlyEnding::Check.
  absl::Status CheckEarlyEnd(const EarlyEnd& end) const {
    return early_end_.Check(end, phases_.current(), least_step(), step_limit());
  }
  // EndEarly was called, and the present phase is the training phase that ends early.
  bool ends_early() const { return early_end_.EndsWith(phases_.current(), step_limit()); }

  // True when there is a phase for this rank to do.
  bool PhaseReady(uint32_t rank) const { return !phases_.Ended(rank) && !rejoins_[rank].unseen; }
  // A later life of the rank has not yet reported the files that it sees.
  bool unseen(uint32_t rank) const { return rejoins_[rank].unseen; }
  // Call when an earlier scheduler has taken that report.
  void SawFiles(uint32_t rank) { rejoins_[rank].unseen = false; }
  const JobPhases& phases() const { return phases_; }

  // FAILED_PRECONDITION outside the training phase of request.epoch. DATA_LOSS in the phase of
  // Restore, when the rank has made requests that this run has not seen.
  absl::StatusOr<NextTaskReply> NextTask(const NextTaskRequest& request);
  // The number of the rank's last request of this epoch; 0: none.
  uint64_t last_request(uint32_t rank) const {
    return tasks() != nullptr ? tasks()->LastNumber(rank) : 0;
  }

  // The present phase as this rank does it.
  Phase PhaseOf(uint32_t rank) const;
  // Where a job that resumes continues the present phase; null: at its beginning.
  const WorkerState* ResumeOf(uint32_t rank) const;
  // The rank's life `lost` is over, and nothing more of it will be applied. Its tasks that `held`
  // lacks are free again. The next life first reports the files that it sees, as phase 0, and then
  // continues the present phase. Adds the examples that are trained again, as far as known, to
  // `replayed`. INVALID_ARGUMENT: `held` is impossible.
  absl::Status Rejoin(uint32_t rank, uint64_t lost, const HeldOfRank& held, uint64_t* replayed);

  // Async and Geo: the rank has reported this state of its training, with which a later life of it
  // continues.
  void NoteState(uint32_t rank, const WorkerState& state);

  // Sync: the state of a rank after global step `step`, when only the sums of its commit of that
  // step are left of it.
  WorkerState StateOfLost(uint32_t rank, uint64_t step, const TrainTotals& totals) const;
  // The counts of the data will leave out what the worker of a lost rank had read. True when that
  // is so: in the first epoch.
  bool LoseSummary();

  // Without epochs_log: see JobResults.
  const JobResult& result() const { return results_.result(); }
  const google::protobuf::RepeatedPtrField<EpochResult>& epochs() const {
    return results_.epochs();
  }
  JobResult ResultWithEpochs() const { return results_.WithEpochs(results_.result()); }
  // The beginning of the training phase that is not over, as if nothing had interrupted it; nothing
  // outside of training.
  std::optional<absl::Time> training_since() const;
  // Sync: steps of an epoch; 0: not known yet.
  uint64_t steps_per_epoch() const { return data_.steps_per_epoch(); }
  // Sync: the global steps at the end of the present training phase, or those done between phases.
  uint64_t step_limit() const;
  // Sync: global steps that are surely done: those before the present training phase.
  uint64_t least_step() const;
  // Sync: global steps that have closed, as far as the ranks' reports say.
  uint64_t closed_steps() const;
  // Sync: the global steps that the attempt found done.
  uint64_t began_after() const { return resume_ == nullptr ? 0 : resume_->state().global_step(); }
  // The state of the job for a checkpoint after global step `step`, but for the workers and the
  // time. FAILED_PRECONDITION when it is too old: only the newest epochs are remembered.
  absl::StatusOr<CheckpointState> StateAt(uint64_t step, absl::Time now) const;
  // Async and Geo: the same for a checkpoint of the present training phase, the workers included.
  // ranks: by rank. INTERNAL when the positions are not in data leased to the ranks.
  absl::StatusOr<CheckpointState> StateOf(uint64_t step, const std::vector<RankPart>& ranks,
                                          absl::Time now) const;
  // The job at the end of the present training phase, as the ranks' reports of it say. In sync the
  // state lacks the workers.
  // REQUIRES: ended_training().
  struct EndOfEpoch {
    CheckpointState state;
    std::vector<WorkerState> workers;  // by rank
    // Async: data of the epoch is left. `state` does not say which; that comes from the ranks and
    // the pservers, as within an epoch (StateOf).
    bool data_is_left = false;
  };
  absl::StatusOr<EndOfEpoch> AtEnd(absl::Time now) const;
  // Async and Geo: counts the steps of the present epoch.
  StepCount step_count() const;
  // Async and Geo: the present life of every rank has begun the present training phase. False for
  // the rest of a phase that an earlier life has ended.
  bool all_training() const;
  // The present life of the rank has ended the present training phase by itself.
  bool ended_by_present_life(uint32_t rank) const {
    return phases_.Ended(rank) && rejoins_[rank].missed != phases_.current().number();
  }
  // A training phase is under way or will come.
  bool trains_more() const;
  // True when the present epoch may be the last one: because none is left, because its evaluation
  // may stop training (train.early_stop), or because the program has ended the job.
  bool MayBeLastEpoch() const;
  // The saves of best models that a checkpoint may still name (BestEpoch.save_id).
  std::vector<std::string> NamedModels() const;
  // Examples of an epoch; 0: not known yet. Sync knows them once the data is counted (malformed
  // lines included), other modes after the first epoch.
  uint64_t examples_expected() const { return examples_expected_; }
  // Frees what only the phases need, once the job is over. Phases and result stay.
  void DropWork();
  // Returns the curve points of ended epochs, each once.
  std::vector<Scalar> TakeScalars();

 private:
  // How the present life of a rank takes part.
  struct Rejoined {
    bool unseen = false;       // it has not reported the data that it sees
    bool has_trained = false;  // it has ended a training phase
    bool later = false;        // an earlier life was lost
    // Of the earlier life's network; async and Geo: the newest that any life has reported.
    std::string net_state;
    // TRAIN: where it continues the phase with this number; 0: where every rank begins.
    uint64_t phase = 0;
    uint64_t skip_steps = 0, commit_again = 0;  // sync
    uint64_t first_step = 0;                    // async and Geo: Phase.first_step
    WorkerState state;
    WorkerState before;  // sync: the state without the step commit_again
    // An earlier life has ended the training phase with this number; 0: none.
    uint64_t missed = 0;
  };

  bool Advance(absl::Time now);
  void BeginPhase(absl::Time now);
  absl::Status TakeContent(uint32_t rank, const PhaseReport& report);
  // Of TRAIN.
  absl::Status TakeTraining(uint32_t rank, const PhaseReport& report);
  // Sets failure_ when the job cannot continue.
  void EndPhase(absl::Time now);
  absl::Status EndIndex();
  void BeginTrain(Phase* phase, absl::Time now);
  absl::Status EndTrain(absl::Time now);
  // The state in global step `step` of this epoch. FAILED_PRECONDITION: as StateAt.
  absl::StatusOr<CheckpointState> StateIn(uint32_t epoch, uint64_t step, absl::Time now) const;
  // Leaves out what a job that its program has ended does not need after its training.
  void SkipToEnd();
  // FAILED_PRECONDITION when the epoch trained nothing.
  absl::Status CheckTrained(const EpochResult& epoch) const;
  // FAILED_PRECONDITION when no example was evaluated.
  absl::Status EndEval();
  // After a training phase: the steps that name a checkpoint of its end.
  uint64_t StepOfCheckpoints() const;
  // Leaves out phases that this run does not need.
  void SkipPhases();
  bool saves_best() const { return config_.checkpoint().save() == CheckpointConfig::BEST; }
  // With checkpoint.save: BEST: no evaluation could be judged, so there is no best model.
  bool none_is_best() const { return result().best().save_id().empty(); }
  // Tells a later life of a rank, which begins to train or to evaluate with this phase, where the
  // earlier one was.
  void ContinueLife(const Rejoined& rejoined, Phase* phase) const;
  absl::Status RejoinSync(const HeldOfRank& held, Rejoined* rejoined) const;
  // Async and Geo: the state with which the rank's present life began this training phase; null if
  // it began without one.
  const WorkerState* BeganWith(uint32_t rank) const;
  // Async and Geo: the state in the present training phase, but for the workers and the open tasks.
  CheckpointState TaskState(uint64_t step, absl::Time now) const;
  bool sync() const { return mode_ == Mode::kSync; }
  // Async and Geo, from the end of INDEX; null otherwise.
  DataTasks* tasks() { return data_.tasks(); }
  const DataTasks* tasks() const { return data_.tasks(); }

  const JobConfig& config_;
  const uint32_t worker_num_;
  const Mode mode_;
  const uint64_t instance_;
  const std::string save_id_;  // Phase.save_id
  const uint64_t global_batch_;
  const ResumePoint* const resume_;
  const bool ranks_close_steps_;
  std::vector<WorkerState> resume_states_;  // by rank
  JobPhases phases_;
  JobResults results_;
  IndexedData data_;
  uint64_t first_step_ = 0;  // sync: first step of the next epoch
  EarlyEnding early_end_;
  // The newest epochs at their beginning, the oldest first.
  struct EpochStart {
    uint32_t epoch = 0;
    JobResult result;     // of the job before this epoch, without epochs_log
    absl::Time began;     // so that the time trained in the epoch is now - began
    double seconds = -1;  // of training in this epoch; -1: it has not ended
  };
  std::deque<EpochStart> starts_;
  std::vector<Rejoined> rejoins_;  // by rank
  // By rank: the state after its last step of the present training phase, for a job that can make
  // checkpoints.
  std::vector<WorkerState> ends_;
  uint64_t examples_expected_ = 0;
  absl::Time phase_began_;
  uint64_t restored_phase_ = 0;  // by Restore; 0: it was not called
  std::vector<Scalar> scalars_;
  bool hold_ = false;
  bool is_best_ = false;  // the evaluation that has just ended
  absl::Status failure_;
};

}  // namespace sluice
