// Decides when a job makes its checkpoints, and follows each of them until it is over.
//
//   idle -> begun (pservers write, ranks report) -> committing -> idle
//
// Checkpoints of a job have the numbers 1, 2, ...; there is one at a time. The next one is asked of
// rank 0, which begins it with the commit of a step (sync). Every pserver then writes its shards,
// and every rank reports where it is. When all parts are in, TakeCommit gives the manifest to
// write. A checkpoint that cannot be completed is given up and counted; the job goes on, and the
// next try has the next number.
//
// Invariants:
// - A number is over (complete or given up) before the next one is asked for.
// - Reports about numbers that are over, or repeated ones, change nothing.
//
// Memory: one report per pserver and rank while a checkpoint is open, then a summary of the newest.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/model.pb.h"
#include "proto/scheduler.pb.h"

namespace sluice {

class JobCheckpoints {
 public:
  struct Options {
    CheckpointConfig config;  // effective
    std::string root;         // folder of the checkpoints
    uint32_t worker_num = 1;
    uint32_t pserver_num = 1;
    uint64_t first_step = 0;  // global steps done when the job begins
  };
  // What members are to be told. A change concerns rank 0 (number, at_step) or all pservers (over).
  struct Asked {
    uint64_t number = 0;  // 0: none is wanted
    uint64_t at_step = 0;
    bool operator==(const Asked& o) const { return number == o.number && at_step == o.at_step; }
  };
  struct Outcome {
    uint64_t number = 0;
    std::string error;  // empty: complete
    std::string dir;
    uint64_t step = 0;
  };

  JobCheckpoints(Options options, absl::Time now);

  // The newest complete checkpoint is one of an earlier run, made `age` before `now`.
  void SetNewest(const Manifest& manifest, absl::Duration age, absl::Time now);
  // The steps of an epoch and of the whole job, once they are known.
  void SetSteps(uint64_t per_epoch, uint64_t last_step);
  // Notes that `step` global steps are done. Training stops at `limit`, the end of its epoch, before
  // it goes on; limit == step: it does not train now.
  void NoteStep(uint64_t step, uint64_t limit, absl::Time now);
  // Decides what is asked next. To be called several times a second and after other events.
  void Plan(absl::Time now);
  // Asks for a checkpoint as soon as possible. Returns its number. REQUIRES: can_begin().
  uint64_t Demand(absl::Time now);
  // False when no more steps will be trained, so that no checkpoint can begin.
  bool can_begin() const { return !stopped_ && !(last_step_ > 0 && step_ >= last_step_); }

  // Reports of pserver 0, 1, ... of the job, and of a rank.
  void TakeHosted(uint32_t pserver, const HostedCut& cut, absl::Time now);
  void TakeWorker(const WorkerCut& cut, absl::Time now);
  // A checkpoint has begun, and SetState has not been called for it.
  bool needs_state() const { return open_ && !open_->state; }
  uint64_t open_step() const { return open_ ? open_->step : 0; }
  absl::Time begun_at() const { return open_ ? open_->begun_at : absl::InfinitePast(); }
  // What the job was at the step of the checkpoint; an error gives it up.
  void SetState(absl::StatusOr<CheckpointState> state, absl::Time now);
  // The manifest of a checkpoint whose parts are all in, once. job_id and tables are missing.
  std::optional<Manifest> TakeCommit();
  // The manifest of checkpoint `number` is written, or could not be.
  void Committed(uint64_t number, const absl::Status& status, absl::Time now);
  // The newest time at which the open checkpoint made progress; InfiniteFuture: none is open, or it
  // is being committed.
  absl::Time progressed_at() const;
  // Gives the open checkpoint up because it makes no progress.
  void GiveUpWaiting(absl::Duration waited, absl::Time now);
  // The job is over: what is not being committed is given up, without being counted as failed.
  void End(absl::Time now);

  const Asked& asked() const { return asked_; }
  uint64_t over() const { return over_; }
  // The open checkpoint is that of the job's last step, so the job waits for it.
  bool finishes_job() const { return open_ && last_step_ > 0 && open_->step == last_step_; }
  // Null while the checkpoint is not over, or when too many others have followed.
  const Outcome* OutcomeOf(uint64_t number) const;
  // A checkpoint that was given up and whose files are to be removed.
  struct Discard {
    uint64_t number = 0;
    uint64_t step = 0;
    std::string why;  // it was given up; only the first time
  };
  // Each is returned twice: at once, and when pservers that were still writing have stopped.
  std::vector<Discard> TakeDiscards(absl::Time now);
  // A text to warn of, once: the first failure after a success.
  std::string TakeWarning();
  CheckpointStatus status() const;

 private:
  struct Open {
    uint64_t step = 0;
    absl::Time begun_at, progressed_at;
    std::vector<HostedCut> hosted;   // by pserver; state unspecified: no report yet
    std::vector<std::optional<WorkerState>> workers;
    std::optional<CheckpointState> state;
    bool committing = false;
    Manifest manifest;  // once committing
  };

  uint64_t number() const { return over_ + 1; }  // of the open or the next one
  // Begins checkpoint `number` if it is the next one. False when the report is of no interest.
  bool Concerns(uint64_t number, const std::string& who, uint64_t step, absl::Time now);
  void CloseOpen(const std::string& error, bool counts, absl::Time now);
  // The next step after those done by now at which a checkpoint is due by steps or epochs; 0: none.
  uint64_t NextDueStep(absl::Time now) const;
  uint64_t EstimatedStep(absl::Time now) const;
  std::string Missing() const;

  const Options options_;
  uint64_t over_ = 0;
  Asked asked_;
  std::optional<Open> open_;
  bool demanded_ = false;
  bool stopped_ = false;   // the job is over
  absl::Time over_at_;  // of the one before, or the beginning
  uint64_t steps_per_epoch_ = 0, last_step_ = 0;
  // How far training is: steps at a time, the rate since the sample before, and where it stops.
  uint64_t step_ = 0, limit_ = 0;
  absl::Time step_at_;
  double steps_per_s_ = 0;
  absl::Time now_;  // of the newest event

  std::deque<Outcome> outcomes_;  // the newest
  std::vector<std::pair<absl::Time, Discard>> discards_;  // due at that time
  CheckpointStatus newest_;       // step, bytes, seconds, made, failed, last_error, dir
  absl::Time newest_cut_at_;
  std::string warning_;
};

}  // namespace sluice
