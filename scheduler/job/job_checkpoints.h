// Asks for the checkpoints of a job when they are due, and follows each of them until it is over.
//
//   by commit    idle -> begun (pservers write, ranks report) -> committing -> idle
//   by order     idle -> asking (ranks report) -> ordered (pservers begin their cuts) -> begun
//                     -> committing -> idle
//
// Checkpoints of a job have the numbers 1, 2, ...; there is one at a time. CheckpointPace says when
// the next one is due, CheckpointParts which parts of the open one are in. When all are,
// TakeCommit gives the manifest to write. A checkpoint that cannot be completed is given up and
// counted; the job continues, and the next try has the next number.
//
// The end of an epoch, in all modes: by order, while the training phase is held (holds_phase). The
// ranks' reports of the end are their parts, so that only Geo ranks are asked, for the files of
// their local optimizers, and one rank of a job whose ranks keep dense tables, for the files of
// these. If an earlier checkpoint is still being written, the phase waits for that: the end of an
// epoch is not left out. Async, when the program ends the job within an epoch: every rank is asked,
// as within an epoch, because their parts say which data is left.
//
// Sync: by commit. Rank 0 always has the number of the next one. It names that in the commit of the
// next multiple of every_steps without another message, or at once when it is asked to. Every
// pserver then writes its shards, and every rank reports where it is. A multiple that passes while
// a checkpoint is being written is left out.
//
// Sync, when the job continues without lost ranks (RankRemoval): by order. Every other rank is
// asked for its part after the last step that closes, and the pservers are told to begin their cuts
// when all parts are in, so that the step has closed everywhere.
//
// Async: every rank is asked, and reports what it has read of the data. Then all pservers are told
// to begin their cuts. These may lie some frames apart: the least position of each rank says which
// data to train again. From the first question until all cuts have begun, the training phase must
// not end (holds_phase), so that all cuts lie in one epoch.
//
// Geo: as async, but a rank that reports is parked with nothing unsent, and continues when all cuts
// have begun. So all cuts and the ranks' files belong together. Each rank confirms that it was
// parked until then: one that continued by itself voids the checkpoint.
//
// A job with exports (ExportPlan) makes them as checkpoints, which need no parts of ranks but
// positions. A multiple of every_steps that passes while something else is written is made up for
// afterwards. ExportTurns says which goes first, and how long a checkpoint that is due, also at the
// end of an epoch, waits for an open export.
//
// Invariants:
// - A number is over (complete or given up) before the next one is asked for.
// - Reports about numbers that are over, or repeated ones, change nothing.
//
// Memory: the CheckpointParts of an open checkpoint, then a summary of the newest.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/config/mode.h"
#include "proto/model.pb.h"
#include "proto/scheduler.pb.h"
#include "scheduler/job/checkpoint_pace.h"
#include "scheduler/job/checkpoint_parts.h"
#include "scheduler/job/checkpoint_results.h"
#include "scheduler/job/data_tasks.h"
#include "scheduler/job/export_plan.h"
#include "scheduler/job/export_turns.h"
#include "scheduler/job/resume_point.h"

namespace sluice {

class JobCheckpoints {
 public:
  struct Options {
    CheckpointConfig config;  // effective
    std::string root;         // folder of the checkpoints
    uint32_t worker_num = 1;
    uint32_t pserver_num = 1;
    std::vector<uint32_t> without_shards;  // pservers that make no part
    uint64_t first_step = 0;               // global steps done when the job begins
    uint64_t over = 0;      // checkpoints up to this number belong to an earlier scheduler
    uint64_t instance = 0;  // of the job
    Mode mode = Mode::kSync;
    // Async: ranks write files for their parts, so they know the folder when they are asked. Its
    // step is then the one before they answer.
    bool ranks_write = false;
    std::optional<ExportConfig> exports;  // effective; sync and async
    std::string export_root;              // the folder of their chain
  };
  // The orders to members. A change of Asked concerns rank 0 (sync, by commit) or all ranks; a
  // change of Ordered or over() all pservers.
  struct Asked {
    uint64_t number = 0;  // 0: none is wanted
    // Sync, of rank 0: in the commit of the next multiple of this number; 0: in its next commit.
    uint64_t every_steps = 0;
    bool park = false, released = false;  // Geo
    // Async and Geo: the folder's step, and that ranks write files there.
    uint64_t step = 0;
    bool ranks_write = false;
    // Sync: not by a commit, but of all ranks, or of this one alone, after exactly at_step.
    bool by_order = false;
    uint64_t at_step = 0;
    std::optional<uint32_t> only;
    bool operator==(const Asked& o) const {
      return number == o.number && every_steps == o.every_steps && park == o.park &&
             released == o.released && step == o.step && ranks_write == o.ranks_write &&
             by_order == o.by_order && at_step == o.at_step && only == o.only;
    }
  };
  // The cut to begin by order, and its folder's step.
  struct Ordered {
    uint64_t number = 0;  // 0: none
    uint64_t step = 0;
    std::vector<uint64_t> export_since = {};  // ExportPlan::since
    bool operator==(const Ordered& o) const {
      return number == o.number && step == o.step && export_since == o.export_since;
    }
  };
  using Outcome = CheckpointResults::Outcome;
  using Discard = CheckpointResults::Discard;

  JobCheckpoints(Options options, absl::Time now);

  // Who has made a checkpoint. One of this job is the newest_manifest; one of the present run is
  // also where lost shards continue (newest_instance).
  enum class Maker : uint8_t { kOtherJob, kThisJob, kThisRun };
  // The newest complete checkpoint was made `age` before `now`, under an earlier scheduler. The
  // interval every_s continues from one of this job.
  void SetNewest(const Manifest& manifest, absl::Duration age, absl::Time now,
                 Maker maker = Maker::kOtherJob);
  // Continues the counts of an earlier scheduler, and the time in which the job has made none.
  void Continue(const CheckpointStatus& before, absl::Time now) { results_.Continue(before, now); }
  // Notes that `step` global steps are done; in async and Geo, the mean of the ranks.
  void NoteStep(uint64_t step, absl::Time now);
  struct Training {
    // Async and Geo: all ranks are in one training phase now, and have workers that can make their
    // parts.
    bool all_ranks = false;
    bool more = true;             // a training phase is under way or will come
    bool pservers_served = true;  // no pserver is vacant
    bool ranks_keep_tables = false;
    // A rank that can write the files of dense tables which the ranks keep; nullopt: none can.
    std::optional<uint32_t> tables_from;
    StepCount steps;  // async and Geo: of the present epoch
  };
  void NoteTraining(const Training& training) { training_ = training; }
  // Sync: rank 0 has ended its training phase, in which it has last named this checkpoint, in its
  // commit of global step `step`. Reports of that may still be under way.
  void NoteNamed(uint64_t number, uint64_t step, absl::Time now);
  // All ranks have ended the training of an epoch, and holds_phase decides whether the phase may
  // end. To be called after NoteTraining and NoteNamed, again as long as the phase has not ended.
  struct EpochEnd {
    uint32_t epoch = 0;                // from 0
    bool last = false;                 // the job may end with this epoch
    uint64_t step = 0;                 // global steps done; async and Geo: the mean of the ranks
    CheckpointState state;             // without the workers in sync
    std::vector<WorkerState> workers;  // by rank
    bool data_is_left = false;         // JobRun::EndOfEpoch
  };
  void EpochEnds(EpochEnd end, absl::Time now);
  // The next epoch begins to train: the one before was not the job's last.
  void EpochBegins(absl::Time now);
  // True when EpochEnds has been called for this epoch of the run.
  bool epoch_end_noted(uint32_t epoch) const { return noted_end_ == epoch; }
  // Decides what is asked next. To be called several times a second and after other events.
  void Plan(absl::Time now);
  // Asks for a checkpoint as soon as possible: an open export is given up for it. Returns its
  // number. If it fails soon after another one was given up, whose files pservers may still have
  // been writing, it is tried once more.
  // REQUIRES: can_begin().
  uint64_t Demand(absl::Time now);
  uint64_t Followed(uint64_t number) const { return results_.Followed(number); }
  // False when no more steps will be trained, so that no checkpoint can begin.
  bool can_begin() const { return !stopped_ && training_.more; }

  // Reports of pserver 0, 1, ... of the job, and of a rank. Reports of pservers without shards are
  // ignored: in sync, no commit tells such a pserver to begin its part.
  void TakeHosted(uint32_t pserver, const HostedCut& cut, absl::Time now);
  void TakeWorker(const WorkerCut& cut, absl::Time now);
  // The worker of a rank is lost. The open checkpoint is given up if it needs more of that worker:
  // its part; within an epoch of async and Geo anything before all cuts have begun; in Geo that it
  // was parked until then. Sync: one that was only asked for is over as well, because it may have
  // begun at some pservers and not at others. The next number takes its place, also for one that
  // was demanded.
  void RankLost(uint32_t rank, absl::Time now);
  // Sync: the job will continue without a lost rank. Until Restart nothing is asked for, except by
  // CutAfterLoss. An open checkpoint continues. An open export is given up, since training stands
  // still until the checkpoint after the loss.
  void Hold(absl::Time now);
  // Asks for a checkpoint after global step `step`, the last one that closes. `lost`: the states of
  // the ranks that cannot report any more. Returns its number. If it fails soon after another one
  // was given up, it is tried once more, as a demanded one. RankLost withdraws it unless it needs
  // nothing more from that rank.
  // REQUIRES: Hold was called, and none is open.
  uint64_t CutAfterLoss(uint64_t step, std::map<uint32_t, WorkerState> lost, absl::Time now);
  // The pserver is lost. The open checkpoint is given up if its files are not written.
  void PserverLost(uint32_t pserver, absl::Time now);
  // Async and Geo: another process takes over the shards of the pserver, which is lost. The open
  // checkpoint is given up unless it is being committed.
  void ShardsLost(uint32_t pserver, absl::Time now);
  // True when a checkpoint has begun and SetState has not been called for it.
  bool needs_state() const { return open_ && !open_->state && open_->stage == Stage::kBegun; }
  // Async and Geo, when needs_state(): by rank. INTERNAL when the pservers contradict each other.
  absl::StatusOr<std::vector<RankPart>> Parts() const { return open_->parts.RankParts(); }
  // True while the training phase must not end, because the cuts of its end, or those of a
  // checkpoint that was asked for within the epoch, have not begun.
  bool holds_phase() const {
    if (open_ && open_->stage != Stage::kBegun) return true;
    return end_.has_value() && !end_begun_;
  }
  // The state of the job in the open checkpoint; null: it is not known yet, or none is open.
  const CheckpointState* open_state() const {
    if (!open_) return nullptr;
    if (open_->committing) return &open_->manifest.checkpoint();
    return open_->state ? &*open_->state : nullptr;
  }
  uint64_t open_step() const { return open_ ? open_->step : 0; }
  uint64_t open_number() const { return open_ ? open_->number : 0; }
  absl::Time begun_at() const { return open_ ? open_->begun_at : absl::InfinitePast(); }
  // Gives the state of the job at the step of the checkpoint; an error gives it up. In sync, the
  // workers are added from their reports.
  void SetState(absl::StatusOr<CheckpointState> state, absl::Time now);
  // The manifest of a checkpoint whose parts are all in, once. job_id and tables are missing.
  std::optional<Manifest> TakeCommit();
  // The manifest of checkpoint `number` is written, or could not be.
  void Committed(uint64_t number, const absl::Status& status, absl::Time now);
  // Gives the open checkpoint up, unless it is being committed.
  void GiveUp(const std::string& why, absl::Time now);
  // The newest time at which the open checkpoint made progress; InfiniteFuture: none is open, or it
  // is being committed.
  absl::Time progressed_at() const;
  // Gives the open checkpoint up because it makes no progress.
  void GiveUpWaiting(absl::Duration waited, absl::Time now);
  // The job's run has ended early, and another one will follow: nothing is asked any more, and what
  // is not being committed is given up without being counted as failed. Reports change nothing
  // until Restart.
  void Interrupt(absl::Time now);
  // The next run of the job begins, as another instance, after `first_step` global steps, and maybe
  // with another number of members.
  // REQUIRES: none is being committed.
  struct NextRun {
    uint64_t instance = 0;
    uint64_t first_step = 0;
    uint32_t worker_num = 1, pserver_num = 1;
    std::vector<uint32_t> without_shards;  // as in Options
  };
  void Restart(const NextRun& run, absl::Time now);
  // The manifest of the newest checkpoint that these runs have completed, without job_id and
  // tables; null: there is none.
  const Manifest* newest_manifest() const { return results_.newest_manifest(); }
  // The instance of the run that has completed it.
  uint64_t newest_instance() const { return results_.newest_instance(); }
  bool open() const { return open_.has_value(); }
  // True while the manifest of a checkpoint is being written.
  bool committing() const { return open_ && open_->committing; }
  // Call when the job is over. Gives up an open checkpoint that is not being committed, without
  // counting it as failed.
  void End(absl::Time now);

  const Asked& asked() const { return asked_; }
  Ordered ordered() const {
    return {ordered_.number, ordered_.step, exports_ ? exports_->since() : std::vector<uint64_t>()};
  }
  // The next export is a new base: the tables do not continue those of the newest one.
  void EndExportChain(const std::string& why);
  // Nullopt: the job makes no exports.
  std::optional<ExportStatus> export_status() const;
  uint64_t over() const { return over_; }
  // True when the open checkpoint is of the job's end, so that the job waits for it.
  bool finishes_job() const {
    return (open_ && open_->ends_training) || (end_.has_value() && end_->last);
  }
  const Outcome* OutcomeOf(uint64_t number) const { return results_.OutcomeOf(number); }
  std::vector<Discard> TakeDiscards(absl::Time now) {
    return results_.TakeDiscards(now, /*all=*/stopped_);
  }
  // Returns, once, the warning about the first failure after a success.
  std::string TakeWarning();
  // age_s: until there is a checkpoint, the age of the job, if some rule asks for checkpoints.
  CheckpointStatus status() const;

 private:
  enum class Stage { kAsking, kOrdered, kBegun };
  struct Open {
    explicit Open(CheckpointParts parts) : parts(std::move(parts)) {}
    Stage stage = Stage::kBegun;
    uint64_t number = 0;
    bool is_export = false;
    std::string chain_ends;  // an export that is being committed: no delta may follow it, and why
    uint64_t step = 0;
    CheckpointParts parts;
    std::optional<uint32_t> of_end;  // the epoch at whose end it is
    bool asks_all = false;           // of_end: AsksAll
    bool ends_training = false;      // of the job's end
    bool after_loss = false;         // by CutAfterLoss
    absl::Time begun_at, progressed_at;
    std::optional<CheckpointState> state;
    bool committing = false;
    Manifest manifest;  // once committing
    bool demanded = false, again = false;
    absl::Time writers_stop_at;  // of those before
  };

  bool sync() const { return options_.mode == Mode::kSync; }
  using Kind = ExportTurns::Kind;
  uint64_t NumberAfter(uint64_t over, Kind kind) const { return turns_.NumberAfter(over, kind); }
  // Of the open one, or of the next checkpoint.
  uint64_t number() const { return open_ ? open_->number : NumberAfter(over_, Kind::kCheckpoint); }
  void Begin(uint64_t number, uint64_t step, Stage stage, absl::Time now);
  // Sync: what rank 0 is to name in a commit; nothing: number 0.
  Asked NextByCommit(absl::Time now) const;
  // Both are due.
  bool ExportGoesFirst(absl::Time now) const {
    return turns_.ExportGoesFirst() && !due_on_demand(now);
  }
  void CloseExport(const std::string& error, bool counts, absl::Time now);
  void GiveUpExportForDemand(absl::Time now);
  void GiveUpSlowExport(absl::Time now);
  // True when the cuts begin by order, after all ranks have answered.
  bool by_order() const { return !sync() || (open_ && (open_->after_loss || open_->of_end)); }
  void PlanAfterLoss(absl::Time now);
  // Every rank makes its part of the checkpoint of this end when it is asked.
  bool AsksAll(const EpochEnd& end) const {
    return options_.mode == Mode::kGeo || (!sync() && end.data_is_left);
  }
  void PlanEnd(absl::Time now);
  // The folder's number for a checkpoint after `step`. Sync: that step. Async and Geo: the cuts of
  // two checkpoints may lie within one mean step, and the second one gets the next number.
  uint64_t FolderStep(uint64_t step) const;
  // Tells the pservers to begin their cuts once all ranks have answered.
  void OrderWhenAnswered();
  // Continues once they have begun; at once, if no pserver makes a part.
  void BeginWhenOrdered();
  // Async and Geo.
  void PlanNow(absl::Time now);
  void Ask(Kind kind, uint64_t step, absl::Time now);
  void TakeAsked(const WorkerCut& cut, absl::Time now);
  void NoteHosted(uint32_t pserver, const HostedCut& cut, absl::Time now);
  void NoteWorker(const WorkerCut& cut, absl::Time now);
  // Closes the checkpoint: a part of it has a file that no member writes.
  void CloseForName(const std::string& who, const std::string& name, absl::Time now);
  void TakeOrdered(uint32_t pserver, const HostedCut& cut, absl::Time now);
  // Begins checkpoint `number` if it is the next one. False when the report is of no interest.
  bool Concerns(uint64_t number, const std::string& who, uint64_t step, absl::Time now);
  // counts: as failed, if there is an error. of_loss: because of the loss of a member.
  void CloseOpen(const std::string& error, bool counts, absl::Time now, bool of_loss = false);
  bool due_on_demand(absl::Time now) const { return demanded_ && now >= again_at_; }

  const Options options_;
  CheckpointPace pace_;
  std::unique_ptr<ExportPlan> exports_;  // null: the job makes none
  ExportTurns turns_{options_.exports.has_value()};
  uint64_t over_ = options_.over;
  Asked asked_;
  Ordered ordered_;
  std::optional<Open> open_;
  Training training_;
  struct AfterLoss {
    uint64_t step = 0;
    std::map<uint32_t, WorkerState> lost;
  };
  bool held_ = false;                    // by Hold
  std::optional<AfterLoss> after_loss_;  // until it is over
  // The end of an epoch whose checkpoint is due; until its cuts have begun, and at the job's end
  // until it is complete, since a lost pserver would end it.
  std::optional<EpochEnd> end_;
  bool end_begun_ = false;             // its cuts have
  std::optional<uint32_t> noted_end_;  // the epoch of the newest EpochEnds of this run
  bool demanded_ = false;
  bool again_ = false;                          // the demanded one has failed once
  absl::Time again_at_ = absl::InfinitePast();  // it is not tried again before
  bool stopped_ = false;                        // the job is over
  bool interrupted_ = false;
  uint64_t instance_ = options_.instance;
  uint32_t worker_num_ = options_.worker_num, pserver_num_ = options_.pserver_num;
  std::vector<uint32_t> without_shards_ = options_.without_shards;
  absl::Time now_;  // of the newest event
  CheckpointResults results_;
};

}  // namespace sluice
