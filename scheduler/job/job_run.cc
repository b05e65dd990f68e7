#include "scheduler/job/job_run.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/data_format.h"
#include "common/config/job_config.h"
#include "common/config/mode.h"
#include "common/config/output_folder.h"
#include "common/config/own_data.h"
#include "common/saved_model/checkpoint.h"
#include "model/features/data_summary.h"
#include "scheduler/job/epoch_judge.h"
#include "scheduler/job/sync_index.h"

namespace sluice {

namespace {

// Epochs whose beginnings are remembered. A checkpoint is described when its first report arrives,
// at most some heartbeats after its step.
constexpr size_t kEpochStarts = 8;

double ToSeconds(absl::Time time) { return absl::ToDoubleSeconds(time - absl::UnixEpoch()); }

// A time of this clock is not after `now`.
absl::Time FromSeconds(double seconds, absl::Time now) {
  return std::min(absl::UnixEpoch() + absl::Seconds(seconds), now);
}

void SetTotals(const TrainTotals& totals, WorkerState* state) {
  TrainReport* const train = state->mutable_train();
  train->set_examples(totals.examples());
  train->set_steps(totals.steps());
  train->set_loss_sum(totals.loss_sum());
  train->set_weight_sum(totals.weight_sum());
  if (!totals.net_state().empty()) state->set_net_state(totals.net_state());
}

// The state of a rank whose report ends a training phase.
WorkerState StateAfter(const PhaseReport& report, bool sync) {
  WorkerState state = report.end();
  if (state.has_train()) return state;
  *state.mutable_train() = report.train();
  // Sync: a rank that resumes there drops the rest of its lanes again, and counts it.
  if (sync) state.mutable_train()->clear_dropped();
  return state;
}

}  // namespace

JobRun::JobRun(const Options& options, absl::Time now)
    : config_(*options.config),
      worker_num_(options.worker_num),
      mode_(ModeOf(config_.strategy())),
      instance_(options.instance),
      save_id_(options.save_id),
      global_batch_(options.global_batch != 0
                        ? options.global_batch
                        : std::max<uint64_t>(StepExamples(config_), 1) * worker_num_),
      resume_(options.resume),
      ranks_close_steps_(options.ranks_close_steps),
      phases_(ListPhases(config_, resume_ == nullptr ? 0 : resume_->state().epoch()), worker_num_),
      results_(config_, worker_num_),
      data_(&config_, worker_num_, global_batch_, resume_),
      early_end_(sync(), options.early_end),
      rejoins_(worker_num_) {
  if (resume_ != nullptr) {
    const CheckpointState& state = resume_->state();
    results_.Resume(state.result(), resume_->dir);
    results_.AddReplayed(resume_->examples_replayed);
    if (state.summary_lacks()) results_.SetSummaryLacks();
    resume_states_ = StatesOfRanks(state, worker_num_);
    // Steps count through all epochs, so this is where the epoch of the checkpoint began.
    first_step_ = state.global_step() - state.steps_done();
  }
  BeginPhase(now);
}

RunState JobRun::Save() const {
  RunState state;
  *state.mutable_results() = results_.Save();
  state.set_first_step(first_step_);
  state.set_examples_expected(examples_expected_);
  if (tasks() != nullptr) state.set_part_bytes(tasks()->cut().part_bytes);
  state.set_began_s(ToSeconds(phase_began_));
  // That of the present phase is made again. A checkpoint made after this cannot lie in an epoch
  // before the last one.
  if (!starts_.empty() && starts_.back().seconds >= 0) {
    const EpochStart& start = starts_.back();
    RunState::EpochStart* const saved = state.add_starts();
    saved->set_epoch(start.epoch);
    *saved->mutable_result() = start.result;
    saved->set_began_s(ToSeconds(start.began));
    saved->set_seconds(start.seconds);
  }
  for (const Rejoined& rejoined : rejoins_) {
    RunState::Life* const life = state.add_lives();
    life->set_has_trained(rejoined.has_trained);
    life->set_unseen(rejoined.unseen);
    life->set_later(rejoined.later);
    life->set_net_state(rejoined.net_state);
  }
  return state;
}

absl::Status JobRun::Restore(uint64_t phase, const RunState& state, bool same_clock,
                             absl::Time now) {
  if (!failure_.ok()) return failure_;
  // The reports of INDEX have been given to this run already, and only they end phase 1.
  const bool indexed = phases_.current().number() == 2;
  if (!indexed || state.lives_size() != static_cast<int>(worker_num_))
    return absl::DataLossError("the reports of the data are not complete");
  SLUICE_RETURN_IF_ERROR(phases_.GoTo(phase));
  // The ranks hold tasks of the earlier scheduler's cut.
  if (tasks() != nullptr && tasks()->cut().part_bytes != state.part_bytes())
    SLUICE_RETURN_IF_ERROR(data_.MakeTasks(state.part_bytes()));
  restored_phase_ = phase;
  results_.Restore(state.results());
  first_step_ = state.first_step();
  examples_expected_ = state.examples_expected();
  // The earlier scheduler has written these points.
  scalars_.clear();
  starts_.clear();
  for (const RunState::EpochStart& start : state.starts()) {
    starts_.push_back({start.epoch(), start.result(),
                       same_clock ? FromSeconds(start.began_s(), now) : now, start.seconds()});
    starts_.back().result.clear_epochs_log();
  }
  for (uint32_t rank = 0; rank < worker_num_; ++rank) {
    const RunState::Life& life = state.lives(static_cast<int>(rank));
    rejoins_[rank].has_trained = life.has_trained();
    rejoins_[rank].unseen = life.unseen();
    rejoins_[rank].later = life.later();
    rejoins_[rank].net_state = life.net_state();
  }
  BeginPhase(same_clock ? FromSeconds(state.began_s(), now) : now);
  return absl::OkStatus();
}

absl::StatusOr<bool> JobRun::TakeReport(uint32_t rank, const PhaseReport& report, absl::Time now) {
  SLUICE_ASSIGN_OR_RETURN(const bool news, phases_.IsNews(rank, report.number()));
  if (rejoins_[rank].unseen && report.number() == 0 && report.has_index() && failure_.ok()) {
    failure_ = data_.TakeSeen(rank, report.index());
    rejoins_[rank].unseen = false;
  }
  if (!news || !failure_.ok()) return false;
  SLUICE_RETURN_IF_ERROR(TakeContent(rank, report));
  if (!failure_.ok()) return false;
  phases_.MarkEnded(rank);
  // It did the phase, so an earlier scheduler had the report of the data that this run lacks.
  rejoins_[rank].unseen = false;
  // While held, the owner ends the phase (TryAdvance) when its checkpoint no longer needs it.
  if (!phases_.AllEnded() || (hold_ && ended_training())) return false;
  return Advance(now);
}

bool JobRun::ended_training() const {
  return phases_.current().kind() == Phase::TRAIN && phases_.AllEnded();
}

bool JobRun::TryAdvance(absl::Time now) {
  return failure_.ok() && !hold_ && ended_training() && Advance(now);
}

bool JobRun::all_training() const {
  const Phase& phase = phases_.current();
  // A rank that has not asked for a task may still be in the phase before. It could not answer.
  if (tasks() == nullptr || phase.kind() != Phase::TRAIN || !tasks()->AllAsked()) return false;
  return std::none_of(rejoins_.begin(), rejoins_.end(),
                      [&](const Rejoined& rejoined) { return rejoined.missed == phase.number(); });
}

bool JobRun::trains_more() const { return phases_.TrainsMore(); }

std::optional<absl::Time> JobRun::training_since() const {
  // After a failure at its end, the epoch is in the result already.
  const bool trains =
      phases_.current().kind() == Phase::TRAIN && !starts_.empty() && starts_.back().seconds < 0;
  return trains ? std::optional<absl::Time>(starts_.back().began) : std::nullopt;
}

void JobRun::EndEarly(const EarlyEnd& end) {
  early_end_.Set(end);
  if (phases_.current().kind() != Phase::TRAIN) return;
  early_end_.Cut(first_step_, phases_.mutable_current());
  if (tasks() != nullptr) tasks()->StopLeasing();
  for (Rejoined& rejoined : rejoins_) {
    // Its lost life has committed a step that never closes.
    if (rejoined.phase != phases_.current().number() || rejoined.commit_again <= step_limit())
      continue;
    --rejoined.skip_steps;
    rejoined.commit_again = 0;
    rejoined.state = rejoined.before;
  }
}

bool JobRun::MayBeLastEpoch() const {
  const uint32_t epoch = phases_.current().epoch();
  return ends_early() || epoch + 1 >= config_.train().epochs() ||
         (IsEvaluatedAfter(config_, epoch) && MayStopNext(config_, result()));
}

std::vector<std::string> JobRun::NamedModels() const {
  std::vector<std::string> saves = {result().best().save_id()};
  if (resume_ != nullptr) saves.push_back(resume_->state().result().best().save_id());
  for (const EpochStart& start : starts_) saves.push_back(start.result.best().save_id());
  return saves;
}

bool JobRun::Advance(absl::Time now) {
  const bool trained = phases_.current().kind() == Phase::TRAIN;
  EndPhase(now);
  if (!failure_.ok()) return false;
  phases_.Advance();
  if (trained && results_.stopped_by_program()) {
    SkipToEnd();
  } else {
    SkipPhases();
  }
  BeginPhase(now);
  return true;
}

void JobRun::SkipToEnd() {
  // A job that was ended before the first step of an epoch may have evaluated its values already.
  const bool evaluated = !epochs().empty() && epochs()[epochs().size() - 1].has_eval();
  if (HasEvaluationData(config_) && !evaluated) return phases_.SkipToLastEvaluation();
  phases_.SkipTraining(/*save=*/!saves_best() || none_is_best());
}

void JobRun::SkipPhases() {
  const bool save_best = saves_best() && phases_.current().kind() == Phase::SAVE;
  // A job of which nothing could be judged keeps the model of its end.
  const bool last = phases_.current().epoch() + 1 == config_.train().epochs();
  if (save_best && (is_best_ || (last && none_is_best()))) return;
  if (save_best) phases_.Advance();
  if (results_.result().stopped_early() && phases_.TrainsMore())
    phases_.SkipTraining(/*save=*/!saves_best());
}

absl::Status JobRun::TakeContent(uint32_t rank, const PhaseReport& report) {
  switch (phases_.current().kind()) {
    case Phase::INDEX:
      failure_ = data_.Take(rank, report.index());
      return absl::OkStatus();
    case Phase::TRAIN:
      return TakeTraining(rank, report);
    case Phase::EVAL:
      return results_.AddEval(rank, report.eval(), report.train().summary());
    case Phase::SAVE:
      if (rank != 0) return absl::OkStatus();
      if (saves_best() && result().best().epoch() == phases_.current().epoch() + 1) {
        results_.SavedBest(phases_.current().save_id(), report.save());
      } else {
        results_.Saved(report.save());
      }
      return absl::OkStatus();
    default:
      return absl::OkStatus();
  }
}

void JobRun::NoteState(uint32_t rank, const WorkerState& state) {
  // In sync a later life continues with the state of the last commit.
  if (!sync() && !state.net_state().empty()) rejoins_[rank].net_state = state.net_state();
}

absl::Status JobRun::TakeTraining(uint32_t rank, const PhaseReport& report) {
  // Before the report is counted: a refused report may be repeated, and must not count twice.
  if (tasks() != nullptr && !early_end_.known()) SLUICE_RETURN_IF_ERROR(tasks()->CheckEnded(rank));
  const Phase& phase = phases_.current();
  PhaseReport counted = report;
  // A life that began after a step which never closes does not know the sums without it.
  if (sync() && ends_early() && report.train().steps() > phase.global_steps() &&
      rejoins_[rank].phase == phase.number()) {
    counted.clear_end();
    *counted.mutable_train() = rejoins_[rank].before.train();
  }
  SLUICE_RETURN_IF_ERROR(results_.AddTrain(rank, counted.train()));
  rejoins_[rank].has_trained = true;
  NoteState(rank, counted.end());
  if (!ends_.empty()) ends_[rank] = StateAfter(counted, sync());
  return absl::OkStatus();
}

void JobRun::BeginPhase(absl::Time now) {
  Phase* phase = phases_.mutable_current();
  phase_began_ = now;
  // It is listed for a later epoch than the one that the program has ended.
  if (results_.stopped_by_program()) phase->set_epoch(std::max(results_.result().epochs(), 1u) - 1);
  switch (phase->kind()) {
    case Phase::TRAIN:
      BeginTrain(phase, now);
      break;
    case Phase::EVAL:
      results_.BeginEval();
      break;
    case Phase::SAVE:
      phase->set_model_dir(ModelFolder(config_));
      phase->set_global_step(results_.result().global_step());
      phase->set_save_id(saves_best() ? EpochSaveId(instance_, phase->epoch()) : save_id_);
      // Earlier than listed, if training stopped early.
      phase->set_epoch(std::max(results_.result().epochs(), 1u) - 1);
      break;
    case Phase::FINISH:
      // As in SAVE. It is shown as the epoch that the job has reached.
      if (results_.result().stopped_early()) phase->set_epoch(results_.result().epochs() - 1);
      if (saves_best()) results_.TakeBestModel(ModelFolder(config_));
      break;
    default:
      break;
  }
}

void JobRun::BeginTrain(Phase* phase, absl::Time now) {
  const bool resumed = resume_ != nullptr && phase->epoch() == resume_->state().epoch();
  const absl::Duration before =
      resumed ? absl::Seconds(resume_->state().epoch_seconds()) : absl::ZeroDuration();
  // As if the epoch had begun before the checkpoint, so that its seconds include those of the
  // earlier run.
  starts_.push_back({phase->epoch(), results_.result(), now - before, /*seconds=*/-1});
  if (starts_.size() > kEpochStarts) starts_.pop_front();
  results_.BeginTrain(now, before);
  if (CanCheckpoint(config_)) ends_.assign(worker_num_, {});
  if (tasks() != nullptr) tasks()->BeginEpoch(phase->epoch());
  if (tasks() != nullptr && early_end_.known()) tasks()->StopLeasing();
  if (!sync()) {
    // Schedules count the steps of a rank. With another number of ranks, none of them has a count
    // of its own.
    if (resumed) phase->set_first_step(MeanSteps(resume_->state()));
    return;
  }
  phase->set_global_steps(steps_per_epoch());
  phase->set_first_step(first_step_);
  if (resumed) phase->set_skip_steps(resume_->state().steps_done());
  early_end_.Cut(first_step_, phase);
}

Phase JobRun::PhaseOf(uint32_t rank) const {
  Phase phase = phases_.current();
  const Rejoined& rejoined = rejoins_[rank];
  // Ranks keep the pieces for later epochs.
  if (phase.kind() == Phase::TRAIN && !rejoined.has_trained && data_.pieces().file_size() > 0)
    *phase.mutable_pieces() = data_.pieces();
  // The rank learns of an early end from its assignment. It reads the data as for the whole epoch.
  if (phase.kind() == Phase::TRAIN && sync()) phase.set_global_steps(steps_per_epoch());
  if (const WorkerState* resume = ResumeOf(rank)) *phase.mutable_resume() = *resume;
  if (rejoined.phase != phase.number()) {
    const bool begins = phase.kind() == Phase::TRAIN || phase.kind() == Phase::EVAL;
    if (begins && rejoined.later && !rejoined.has_trained) ContinueLife(rejoined, &phase);
    return phase;
  }
  *phase.mutable_resume() = rejoined.state;
  if (!sync()) {
    phase.set_first_step(rejoined.first_step);
    return phase;
  }
  phase.set_skip_steps(rejoined.skip_steps);
  phase.set_commit_again(rejoined.commit_again);
  return phase;
}

void JobRun::ContinueLife(const Rejoined& rejoined, Phase* phase) const {
  if (!rejoined.net_state.empty()) phase->mutable_resume()->set_net_state(rejoined.net_state);
  // Geo: the schedule of the rank's own steps continues.
  if (sync() || phase->kind() != Phase::TRAIN || phase->has_resume()) return;
  phase->mutable_resume();
  phase->set_first_step(result().global_step() / worker_num_);
}

absl::Status JobRun::Rejoin(uint32_t rank, uint64_t lost, const HeldOfRank& held,
                            uint64_t* replayed) {
  Rejoined rejoined;
  rejoined.unseen = rejoined.later = true;
  // Sync counts a step when it is committed, and then all pservers hold it. Otherwise only what the
  // slowest shard holds is certain.
  const TrainTotals& totals = sync() ? held.committed.totals() : held.least.totals();
  // Two lives may be lost before the second one has trained.
  rejoined.net_state = totals.net_state().empty() ? rejoins_[rank].net_state : totals.net_state();
  const Phase& phase = phases_.current();
  // The lost life has reported its end already. The next one has nothing to do until the phase
  // ends.
  if (phase.kind() == Phase::TRAIN && phases_.Ended(rank)) rejoined.missed = phase.number();
  if (phase.kind() == Phase::TRAIN && !phases_.Ended(rank)) {
    if (const WorkerState* resume = ResumeOf(rank)) rejoined.state = *resume;
    if (sync()) {
      SLUICE_RETURN_IF_ERROR(RejoinSync(held, &rejoined));
    } else {
      const RankPosition& least = held.least;
      const bool this_epoch = least.epoch() == phase.epoch() && least.incarnation() > 0;
      const bool of_lost = this_epoch && least.incarnation() == lost;
      // The schedule goes on from the steps that the rank had done when the phase began.
      const uint64_t begun = rejoined.state.train().steps();
      const uint64_t before = phase.first_step() > 0
                                  ? phase.first_step() - std::min(begun, phase.first_step())
                                  : result().global_step() / worker_num_;
      rejoined.phase = phase.number();
      if (of_lost) {
        SetTotals(least.totals(), &rejoined.state);
      } else if (const WorkerState* state = BeganWith(rank)) {
        rejoined.state = *state;
      }
      // Geo: the local optimizer state was lost with the worker.
      rejoined.state.clear_file();
      if (!rejoined.net_state.empty()) rejoined.state.set_net_state(rejoined.net_state);
      rejoined.first_step = before + rejoined.state.train().steps();
      // Positions of an earlier life name tasks that were leased to it. They say nothing of what
      // this life held.
      SLUICE_RETURN_IF_ERROR(tasks()->Release(rank, of_lost ? least : RankPosition()));
      // Examples that only some shards hold are trained again on all of them.
      const RankPosition& most = held.most;
      const uint64_t from = rejoined.state.train().examples();
      if (most.incarnation() == lost && most.epoch() == phase.epoch() &&
          most.totals().examples() > from) {
        *replayed += most.totals().examples() - from;
      }
    }
    // Without tables on pservers, the other ranks say later where the rank continues.
    const bool all_read_again = sync() && rejoined.phase == 0 && !ranks_close_steps_;
    if (epochs().empty() && !all_read_again) results_.SummaryLacks(rank);
  }
  rejoins_[rank] = std::move(rejoined);
  return absl::OkStatus();
}

absl::Status JobRun::RejoinSync(const HeldOfRank& held, Rejoined* rejoined) const {
  const uint64_t committed = held.committed.committed();
  // A program that has ended the job makes no step after the last one, but another rank may have
  // committed one.
  const bool ahead = early_end_.IsAhead(committed, phases_.current(), step_limit());
  if (committed > step_limit() + ahead) {
    return absl::InvalidArgumentError(absl::StrCat("a pserver reports a commit of step ", committed,
                                                   ", but the epoch ends with step ",
                                                   step_limit()));
  }
  // Steps before this phase, or before the checkpoint that it resumes from, are closed everywhere.
  if (committed - ahead <= least_step()) return absl::OkStatus();
  rejoined->phase = phases_.current().number();
  rejoined->before = rejoined->state;
  // The commit before the first one of the phase is of another epoch.
  if (committed - 1 > least_step()) SetTotals(held.committed.totals_before(), &rejoined->before);
  if (ahead) {
    rejoined->skip_steps = step_limit() - first_step_;
    rejoined->state = rejoined->before;
    return absl::OkStatus();
  }
  // The commit may have reached some pservers only. The next life repeats it, which changes nothing
  // where it has arrived.
  rejoined->skip_steps = committed - first_step_;
  rejoined->commit_again = committed;
  SetTotals(held.committed.totals(), &rejoined->state);
  return absl::OkStatus();
}

const WorkerState* JobRun::BeganWith(uint32_t rank) const {
  const Rejoined& rejoined = rejoins_[rank];
  // A life that rejoined in this phase began with what its predecessor had left.
  return rejoined.phase == phases_.current().number() ? &rejoined.state : ResumeOf(rank);
}

const WorkerState* JobRun::ResumeOf(uint32_t rank) const {
  const Phase& phase = phases_.current();
  const bool resumed = resume_ != nullptr && phase.kind() == Phase::TRAIN &&
                       phase.epoch() == resume_->state().epoch() && rank < resume_states_.size();
  return resumed ? &resume_states_[rank] : nullptr;
}

uint64_t JobRun::least_step() const {
  const Phase& phase = phases_.current();
  return first_step_ + (phase.kind() == Phase::TRAIN ? phase.skip_steps() : 0);
}

uint64_t JobRun::closed_steps() const {
  const Phase& phase = phases_.current();
  if (phase.kind() != Phase::TRAIN) return least_step();
  // No rank ends the phase before its last step has closed.
  for (uint32_t rank = 0; rank < worker_num_; ++rank) {
    if (phases_.Ended(rank)) return step_limit();
  }
  return least_step();
}

uint64_t JobRun::step_limit() const {
  const Phase& phase = phases_.current();
  return first_step_ + (phase.kind() == Phase::TRAIN ? phase.global_steps() : 0);
}

WorkerState JobRun::StateOfLost(uint32_t rank, uint64_t step, const TrainTotals& totals) const {
  WorkerState state;
  // The last step of an epoch still belongs to it, as in StateAt.
  const uint64_t epoch = steps_per_epoch() == 0 ? 0 : (step - 1) / steps_per_epoch();
  if (resume_ != nullptr && epoch == resume_->state().epoch()) state = resume_states_[rank];
  SetTotals(totals, &state);
  return state;
}

bool JobRun::LoseSummary() {
  const bool first_epoch = epochs().empty();
  // Later epochs read the same data, whose summary is complete by then.
  if (first_epoch) results_.SetSummaryLacks();
  return first_epoch;
}

absl::StatusOr<CheckpointState> JobRun::StateAt(uint64_t step, absl::Time now) const {
  if (step == 0 || steps_per_epoch() == 0)
    return absl::InternalError(absl::StrCat("no epoch has step ", step));
  // The last step of an epoch still belongs to it: its results come later.
  return StateIn(static_cast<uint32_t>((step - 1) / steps_per_epoch()), step, now);
}

absl::StatusOr<CheckpointState> JobRun::StateIn(uint32_t epoch, uint64_t step,
                                                absl::Time now) const {
  const auto start = std::find_if(starts_.begin(), starts_.end(),
                                  [&](const EpochStart& one) { return one.epoch == epoch; });
  if (start == starts_.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat("its reports arrived late: the job has moved on from epoch ", epoch + 1,
                     " to epoch ", phases_.current().epoch() + 1));
  }
  CheckpointState state;
  state.set_mode(ModeName(mode_));
  state.set_global_step(step);
  state.set_worker_num(worker_num_);
  state.set_global_batch(global_batch_);
  state.set_epoch(epoch);
  state.set_steps_done(step - epoch * steps_per_epoch());
  state.set_steps_per_epoch(steps_per_epoch());
  state.set_epoch_seconds(start->seconds >= 0 ? start->seconds
                                              : absl::ToDoubleSeconds(now - start->began));
  *state.mutable_train_files() = data_.train_files();
  *state.mutable_result() = results_.WithEpochs(start->result, start->epoch);
  state.set_summary_lacks(results_.summary_lacks());
  return state;
}

StepCount JobRun::step_count() const {
  const uint64_t before =
      starts_.empty() ? result().global_step() : starts_.back().result.global_step();
  return StepCount(resume_ == nullptr ? nullptr : &resume_->state(), before, worker_num_);
}

uint64_t JobRun::StepOfCheckpoints() const {
  const uint64_t all = result().global_step();
  if (sync()) return all;
  return step_count().At(starts_.empty() ? 0 : all - starts_.back().result.global_step());
}

absl::StatusOr<JobRun::EndOfEpoch> JobRun::AtEnd(absl::Time now) const {
  EndOfEpoch end;
  end.workers = ends_;
  if (sync()) {
    const Phase& phase = phases_.current();
    if (phase.global_steps() == 0) {
      // A program has ended the job before the first step of this epoch. Not as the end of the
      // epoch before: the ranks' sums of that are gone.
      SLUICE_ASSIGN_OR_RETURN(end.state, StateIn(phase.epoch(), step_limit(), now));
    } else {
      SLUICE_ASSIGN_OR_RETURN(end.state, StateAt(step_limit(), now));
    }
    return end;
  }
  end.data_is_left = ends_early();
  uint64_t steps = 0;
  for (const WorkerState& worker : ends_) steps += worker.train().steps();
  // All tasks are done, unless data is left, and every pserver has all that the ranks have pushed.
  end.state = TaskState(step_count().At(steps), now);
  for (const WorkerState& worker : ends_) *end.state.add_workers() = worker;
  return end;
}

CheckpointState JobRun::TaskState(uint64_t step, absl::Time now) const {
  CheckpointState state;
  state.set_mode(ModeName(mode_));
  state.set_global_step(step);
  state.set_worker_num(worker_num_);
  state.set_epoch(phases_.current().epoch());
  state.set_task_bytes(tasks()->cut().task_bytes);
  state.set_part_bytes(tasks()->cut().part_bytes);
  state.set_epoch_seconds(absl::ToDoubleSeconds(now - starts_.back().began));
  *state.mutable_train_files() = data_.train_files();
  *state.mutable_result() = results_.WithEpochs(starts_.back().result, starts_.back().epoch);
  state.set_summary_lacks(results_.summary_lacks());
  return state;
}

absl::StatusOr<CheckpointState> JobRun::StateOf(uint64_t step, const std::vector<RankPart>& ranks,
                                                absl::Time now) const {
  const Phase& phase = phases_.current();
  if (tasks() == nullptr || phase.kind() != Phase::TRAIN || starts_.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the job was in phase ", PhaseName(phase.kind()), " when the cuts began"));
  }
  CheckpointState state = TaskState(step, now);
  // Copied, since positions of other epochs are cleared below.
  std::vector<RankPart> parts = ranks;
  for (uint32_t rank = 0; rank < parts.size(); ++rank) {
    RankPosition& held = parts[rank].held;
    WorkerState* const worker = state.add_workers();
    *worker = parts[rank].state;
    TrainReport* const train = worker->mutable_train();
    TrainTotals totals = held.totals();
    if (held.sequence() == 0 || held.epoch() != phase.epoch()) {
      // No frame of this life and epoch is on all shards, so the rank has what it began with.
      held.clear_task_id();
      totals.Clear();
      if (const WorkerState* begun = BeganWith(rank)) {
        totals.set_examples(begun->train().examples());
        totals.set_steps(begun->train().steps());
        totals.set_loss_sum(begun->train().loss_sum());
        totals.set_weight_sum(begun->train().weight_sum());
      }
    }
    train->set_examples(totals.examples());
    train->set_steps(totals.steps());
    train->set_loss_sum(totals.loss_sum());
    train->set_weight_sum(totals.weight_sum());
  }
  SLUICE_ASSIGN_OR_RETURN(const std::vector<DataTask> open, tasks()->OpenAt(parts));
  for (const DataTask& task : open) *state.add_open_tasks() = task;
  return state;
}

void JobRun::EndPhase(absl::Time now) {
  switch (phases_.current().kind()) {
    case Phase::INDEX:
      // What is made here has the size that the ranks' reports say, and no rank repeats its report.
      try {
        failure_ = EndIndex();
      } catch (const std::bad_alloc&) {
        failure_ = absl::ResourceExhaustedError(
            "the scheduler has no memory for the list of tasks or pieces of data.train_files; "
            "raise "
            "data.task_bytes, join small files, or give the scheduler more memory");
      }
      break;
    case Phase::TRAIN:
      failure_ = EndTrain(now);
      break;
    case Phase::EVAL:
      failure_ = EndEval();
      break;
    default:
      break;
  }
}

absl::Status JobRun::EndIndex() {
  SLUICE_RETURN_IF_ERROR(data_.End());
  examples_expected_ = data_.examples();
  if (const std::string order = data_.WarningOfOrder(); !order.empty()) results_.Warn(order);
  return absl::OkStatus();
}

absl::Status JobRun::EndTrain(absl::Time now) {
  const Phase& phase = phases_.current();
  const bool early = ends_early();
  // A guard against our own mistakes: a task that nobody trained would only show as a worse model.
  if (tasks() != nullptr && !early) SLUICE_RETURN_IF_ERROR(tasks()->CheckComplete());
  if (early) {
    results_.StopByProgram();
    // The counts of half of the data would lead to wrong warnings about it.
    if (epochs().empty()) results_.SetSummaryLacks();
    // An epoch without a step is none.
    if (sync() ? phase.global_steps() == 0 : results_.steps() == 0) {
      starts_.back().seconds = 0;
      return results_.CheckBadLines();
    }
  }
  const EpochResult& epoch = results_.EndTrain(phase.epoch(), phase.global_steps(), now);
  // Fixed now: a checkpoint of the last step may be described when the next phase runs.
  starts_.back().seconds = epoch.seconds();
  if (!early) SLUICE_RETURN_IF_ERROR(CheckTrained(epoch));
  first_step_ += phase.global_steps();
  examples_expected_ = epoch.examples();
  scalars_.push_back({"train/epoch_loss", epoch.epoch(), epoch.loss()});
  return results_.CheckBadLines();
}

absl::Status JobRun::CheckTrained(const EpochResult& epoch) const {
  if (!results_.CheckBadLines().ok()) return absl::OkStatus();
  const bool weighted =
      !config_.data().weight_column().empty() || FormatOf(config_.data()).weighted_labels;
  if (weighted && epoch.examples() > 0 && results_.trained_weight() == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("nothing was learned: each of the ", epoch.examples(), " examples of epoch ",
                     epoch.epoch(), " has weight 0; ", RemedyOfZeroWeights(config_.data())));
  }
  if (epoch.examples() > 0) return absl::OkStatus();
  const uint64_t dropped = results_.result().examples_dropped();
  if (ProgramGivesData(config_)) {
    return absl::FailedPreconditionError(
        absl::StrCat("the sources of the program gave no examples in epoch ", epoch.epoch(),
                     "; source(rank, world, epoch, start) must give batches for every epoch"));
  }
  if (dropped == 0) return NoExamples(results_.bad_lines());
  return absl::FailedPreconditionError(
      absl::StrCat("data.drop_last leaves nothing to train: none of the tasks (", dropped,
                   " examples in all) fills a batch of ", config_.train().batch_size(),
                   "; lower train.batch_size, raise data.task_bytes or set data.drop_last: false"));
}

absl::Status JobRun::EndEval() {
  const EvalMetrics& eval = results_.EndEval(phases_.current().epoch());
  // Curves count epochs from 1; the point of a job that only evaluates is at 0.
  const uint32_t epoch = config_.evaluate_only() ? 0 : phases_.current().epoch() + 1;
  // An undefined metric gets no point: readers would believe a drop to 0.
  const auto add = [&](const std::string& tag, double value) {
    if (std::isfinite(value)) scalars_.push_back({tag, epoch, value});
  };
  if (!config_.evaluate_only())
    is_best_ = results_.Judge(phases_.current().epoch(), StepOfCheckpoints());
  if (eval.has_auc()) add("eval/auc", eval.auc());
  add("eval/log_loss", eval.log_loss());
  add("eval/accuracy", eval.accuracy());
  add("eval/mae", eval.mae());
  add("eval/rmse", eval.rmse());
  for (const NamedValue& user : eval.user()) add("eval/" + user.name(), user.value());
  SLUICE_RETURN_IF_ERROR(results_.CheckBadLines());
  if (eval.examples() > 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      ProgramGivesData(config_)
          ? "eval_source of the program gave no examples; correct it, or leave it out"
          : "the evaluation data has no examples; correct data.eval_files, or remove the field");
}

absl::StatusOr<NextTaskReply> JobRun::NextTask(const NextTaskRequest& request) {
  const Phase& phase = phases_.current();
  if (tasks() == nullptr || phase.kind() != Phase::TRAIN || phase.epoch() != request.epoch()) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", request.rank(), " asks for a data task of epoch ",
                     request.epoch() + 1, ", but the job is in phase ", phase.number(), " (",
                     PhaseName(phase.kind()), " of epoch ", phase.epoch() + 1, ")"));
  }
  const uint64_t last = tasks()->LastNumber(request.rank());
  if (restored_phase_ == phase.number() && request.number() > last + 1) {
    return absl::DataLossError(absl::StrCat("rank ", request.rank(), " makes its request ",
                                            request.number(), " for a data task of epoch ",
                                            phase.epoch() + 1, ", but ", last,
                                            " is the last that is known"));
  }
  rejoins_[request.rank()].unseen = false;  // as at the end of a phase
  return tasks()->Next(request);
}

void JobRun::DropWork() {
  data_.Drop();
  starts_.clear();
  ends_.clear();
  resume_states_.clear();
  results_.DropSums();
}

std::vector<Scalar> JobRun::TakeScalars() { return std::exchange(scalars_, {}); }

}  // namespace sluice
