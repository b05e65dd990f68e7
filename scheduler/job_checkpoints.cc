#include "scheduler/job_checkpoints.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/saved_model/checkpoint.h"
#include "common/wire/train_position.h"

namespace sluice {
namespace {

constexpr size_t kOutcomes = 16;
// Time that rank 0 needs to learn of a step that is asked for. A step that would be reached sooner
// is left out, since the checkpoint would then be made after another step.
constexpr absl::Duration kNotice = absl::Milliseconds(300);
// By then every pserver has learnt that a checkpoint was given up, and has stopped writing it.
constexpr absl::Duration kWritersStop = absl::Seconds(10);
constexpr double kMiB = 1 << 20;

uint64_t BytesOf(const Manifest& manifest) {
  uint64_t bytes = 0;
  for (const SavedFile& file : manifest.files()) bytes += file.bytes();
  return bytes;
}

}  // namespace

JobCheckpoints::JobCheckpoints(Options options, absl::Time now)
    : options_(std::move(options)),
      asked_from_(options_.first_step),
      over_at_(now),
      step_(options_.first_step),
      limit_(options_.first_step),
      step_at_(now),
      now_(now),
      newest_cut_at_(now),
      first_run_at_(now) {
  Plan(now);
}

void JobCheckpoints::SetNewest(const Manifest& manifest, absl::Duration age, absl::Time now,
                               Maker maker) {
  if (maker != Maker::kOtherJob) complete_ = manifest;
  if (maker == Maker::kThisRun) complete_instance_ = instance_;
  newest_.set_step(manifest.global_step());
  newest_.set_bytes(BytesOf(manifest));
  newest_.set_dir(CheckpointFolder(options_.root, manifest.global_step()));
  newest_cut_at_ = now - age;
  if (maker != Maker::kOtherJob) over_at_ = newest_cut_at_;
}

void JobCheckpoints::Continue(const CheckpointStatus& before, absl::Time now) {
  newest_.set_made(before.made());
  newest_.set_failed(before.failed());
  newest_.set_last_error(before.last_error());
  if (before.step() == 0) first_run_at_ = now - absl::Seconds(before.age_s());
}

void JobCheckpoints::SetSteps(uint64_t per_epoch, uint64_t last_step) {
  steps_per_epoch_ = per_epoch;
  last_step_ = last_step;
}

void JobCheckpoints::NoteStep(uint64_t step, uint64_t limit, absl::Time now) {
  now_ = now;
  const uint64_t before = limit_;
  limit_ = std::max(step, limit);
  // Another phase: the time in which nothing was trained says nothing about the speed.
  if (limit_ != before && step <= step_) step_at_ = now;
  if (step <= step_) return;
  const double passed = absl::ToDoubleSeconds(now - step_at_);
  if (passed > 0) steps_per_s_ = static_cast<double>(step - step_) / passed;
  step_ = step;
  step_at_ = now;
}

uint64_t JobCheckpoints::EstimatedStep(absl::Time now) const {
  const double since = absl::ToDoubleSeconds(now - step_at_ + kNotice);
  const double more = std::min(steps_per_s_ * since, static_cast<double>(limit_ - step_));
  return step_ + static_cast<uint64_t>(std::max(more, 0.0));
}

uint64_t JobCheckpoints::NextDueStep(absl::Time now) const {
  const uint64_t done = EstimatedStep(now);
  uint64_t due = 0;
  const auto add = [&](uint64_t step) {
    if (due == 0 || step < due) due = step;
  };
  const auto add_multiples_of = [&](uint64_t interval) {
    if (interval == 0) return;
    const uint64_t next = (done / interval + 1) * interval;
    if (last_step_ == 0 || next <= last_step_) add(next);
    // No step follows the last one, so it may be asked for too late.
    if (last_step_ > step_ && last_step_ % interval == 0) add(last_step_);
  };
  add_multiples_of(options_.config.every_steps());
  add_multiples_of(options_.config.every_epochs() * steps_per_epoch_);
  return due;
}

void JobCheckpoints::NoteTraining(bool all_training, bool more) {
  all_training_ = all_training;
  more_training_ = more;
}

void JobCheckpoints::EpochEnds(uint32_t epoch, bool last, absl::Time now) {
  now_ = now;
  const uint32_t every = options_.config.every_epochs();
  const bool due = demanded_ || (every > 0 && (epoch + 1) % every == 0);
  if (sync() || stopped_ || interrupted_ || !all_training_ || !due) return;
  if (open_) {
    end_due_ = last ? EndDue::kOfTraining : EndDue::kOfEpoch;
    return;
  }
  Ask(now);
  open_->ends_training = last;
}

void JobCheckpoints::PlanNow(absl::Time now) {
  if (open_ || interrupted_ || !all_training_ || !can_begin()) return;
  const uint64_t every_steps = options_.config.every_steps();
  const bool due_by_steps = every_steps > 0 && step_ / every_steps > asked_from_ / every_steps;
  if (!due_on_demand(now) && !due_by_time(now) && !due_by_steps && end_due_ == EndDue::kNone)
    return;
  Ask(now);
  open_->ends_training = std::exchange(end_due_, EndDue::kNone) == EndDue::kOfTraining;
}

void JobCheckpoints::Ask(absl::Time now) {
  Begin(std::max<uint64_t>(step_, 1), Stage::kAsking, now);
  asked_from_ = step_;
  asked_ = {number(), 0, options_.mode == Mode::kGeo, false, open_->step};
}

void JobCheckpoints::Begin(uint64_t step, Stage stage, absl::Time now) {
  open_ = Open();
  open_->stage = stage;
  open_->step = step;
  open_->begun_at = open_->progressed_at = now;
  open_->hosted.resize(pserver_num_);
  for (const uint32_t pserver : without_shards_)
    open_->hosted[pserver].set_state(HostedCut::WRITTEN);
  open_->workers.resize(worker_num_);
  open_->tasks.resize(worker_num_);
  open_->went_on.resize(worker_num_);
  open_->demanded = std::exchange(demanded_, false);
  open_->again = std::exchange(again_, false);
  open_->writers_stop_at = writers_stop_at_;
  again_at_ = absl::InfinitePast();
}

void JobCheckpoints::Plan(absl::Time now) {
  now_ = now;
  if (!sync()) return PlanNow(now);
  if (held_) return PlanAfterLoss(now);
  const bool behind_the_end = last_step_ > 0 && asked_.at_step > last_step_;
  if (!can_begin() || behind_the_end) asked_ = {};
  if (open_ || !can_begin() || interrupted_) return;
  if (due_on_demand(now) || due_by_time(now)) {
    asked_ = {number(), 0};
    return;
  }
  const uint64_t due = NextDueStep(now);
  if (due == 0) return;
  // A step that was asked for stays: when it seems to have passed, its checkpoint has begun and the
  // reports are on their way. Only an earlier step replaces it, e.g. once the steps of an epoch are
  // known.
  if (asked_.number == 0 || due < asked_.at_step) asked_ = {number(), due};
}

uint64_t JobCheckpoints::CutAfterLoss(uint64_t step, std::map<uint32_t, WorkerState> lost,
                                      absl::Time now) {
  after_loss_ = {step, std::move(lost)};
  Plan(now);
  return number();
}

void JobCheckpoints::PlanAfterLoss(absl::Time now) {
  if (!open_) asked_ = {};
  if (open_ || !after_loss_ || interrupted_ || stopped_ || now < again_at_) return;
  Begin(after_loss_->step, Stage::kAsking, now);
  open_->after_loss = open_->demanded = true;
  for (const auto& [rank, state] : after_loss_->lost) open_->workers[rank] = state;
  asked_ = {number(), open_->step};
  asked_.after_loss = true;
  OrderWhenAnswered();
}

void JobCheckpoints::OrderWhenAnswered() {
  for (const auto& worker : open_->workers) {
    if (!worker) return;
  }
  open_->stage = Stage::kOrdered;
  ordered_ = {number(), open_->step};
}

uint64_t JobCheckpoints::Demand(absl::Time now) {
  // The open one does not include the steps since it began.
  const uint64_t next = open_ ? number() + 1 : number();
  demanded_ = true;
  Plan(now);
  return next;
}

bool JobCheckpoints::Concerns(uint64_t number, const std::string& who, uint64_t step,
                              absl::Time now) {
  now_ = now;
  if (number != this->number() || interrupted_) return false;
  if (!open_) {
    Begin(step, Stage::kBegun, now);
    NoteStep(step, limit_, now);
  }
  if (open_->committing) return false;
  if (open_->step == step) return true;
  CloseOpen(absl::StrCat("the parts were made at different steps: ", who,
                         " made its part after step ", step, ", others after step ", open_->step),
            /*counts=*/true, now);
  return false;
}

void JobCheckpoints::TakeHosted(uint32_t pserver, const HostedCut& cut, absl::Time now) {
  if (pserver >= pserver_num_) return;
  if (std::count(without_shards_.begin(), without_shards_.end(), pserver) > 0) return;
  if (by_order()) return TakeOrdered(pserver, cut, now);
  const std::string who = absl::StrCat("pserver ", pserver);
  // A pserver that could not even begin may not know the step.
  const uint64_t step = cut.state() == HostedCut::FAILED && open_ ? open_->step : cut.step();
  if (!Concerns(cut.checkpoint(), who, step, now)) return;
  NoteHosted(pserver, cut, now);
}

void JobCheckpoints::NoteHosted(uint32_t pserver, const HostedCut& cut, absl::Time now) {
  if (cut.state() == HostedCut::FAILED) {
    CloseOpen(absl::StrCat("pserver ", pserver, ": ", cut.error()), /*counts=*/true, now);
    return;
  }
  // Reports can overtake each other.
  HostedCut& known = open_->hosted[pserver];
  if (known.state() == HostedCut::WRITTEN) return;
  const bool progress = cut.state() != known.state() || cut.written_bytes() > known.written_bytes();
  if (!progress) return;
  known = cut;
  open_->progressed_at = now;
}

void JobCheckpoints::TakeWorker(const WorkerCut& cut, absl::Time now) {
  if (cut.rank() >= worker_num_) return;
  if (by_order()) return TakeAsked(cut, now);
  if (!Concerns(cut.checkpoint(), absl::StrCat("rank ", cut.rank()), cut.step(), now)) return;
  std::optional<WorkerState>& known = open_->workers[cut.rank()];
  if (known) return;
  known = cut.state();
  open_->progressed_at = now;
}

void JobCheckpoints::RankLost(uint32_t rank, absl::Time now) {
  now_ = now;
  after_loss_.reset();
  if (open_) {
    if (open_->committing || Complete(rank)) return;
    CloseOpen(absl::StrCat("rank ", rank, " was lost before it had made its part"),
              /*counts=*/true, now, /*of_loss=*/true);
    return;
  }
  if (asked_.number == 0) return;
  Outcome outcome;
  outcome.number = number();
  outcome.error = absl::StrCat("rank ", rank, " was lost before the checkpoint began");
  if (demanded_) outcome.followed_by = outcome.number + 1;
  outcomes_.push_back(std::move(outcome));
  if (outcomes_.size() > kOutcomes) outcomes_.pop_front();
  over_ = number();
  asked_ = {};
  writers_stop_at_ = now + kWritersStop;
  Plan(now);
}

bool JobCheckpoints::Complete(uint32_t rank) const {
  // A cut that begins later would be one of the rank's next worker.
  if (open_->stage != Stage::kBegun || !open_->workers[rank]) return false;
  return options_.mode != Mode::kGeo || open_->went_on[rank];
}

void JobCheckpoints::PserverLost(uint32_t pserver, absl::Time now) {
  now_ = now;
  if (!open_ || open_->committing || open_->hosted[pserver].state() == HostedCut::WRITTEN) return;
  CloseOpen(absl::StrCat("pserver ", pserver, " was lost"), /*counts=*/true, now,
            /*of_loss=*/true);
}

void JobCheckpoints::ShardsLost(uint32_t pserver, absl::Time now) {
  now_ = now;
  if (!open_ || open_->committing) return;
  CloseOpen(absl::StrCat("pserver ", pserver, " was lost"), /*counts=*/true, now,
            /*of_loss=*/true);
}

void JobCheckpoints::TakeAsked(const WorkerCut& cut, absl::Time now) {
  now_ = now;
  if (!open_ || open_->committing || cut.checkpoint() != number()) return;
  const uint32_t rank = cut.rank();
  const std::string who = absl::StrCat("rank ", rank);
  if (!cut.error().empty()) {
    CloseOpen(absl::StrCat(who, ": ", cut.error()), /*counts=*/true, now);
    return;
  }
  if (sync() && cut.step() != open_->step) {
    CloseOpen(absl::StrCat(who, " made its part after step ", cut.step(), ", not after step ",
                           open_->step),
              /*counts=*/true, now);
    return;
  }
  const bool geo = options_.mode == Mode::kGeo;
  // Reports can overtake each other: a rank that continued was parked before.
  if (geo && !cut.parked() && !open_->went_on[rank]) {
    if (open_->stage != Stage::kBegun) {
      CloseOpen(absl::StrCat(who, " continued training before all pservers had begun their cuts"),
                /*counts=*/true, now);
      return;
    }
    open_->went_on[rank] = true;
    open_->progressed_at = now;
  }
  std::optional<WorkerState>& known = open_->workers[rank];
  if (known) return;
  known = cut.state();
  open_->tasks[rank] = cut.step();
  open_->progressed_at = now;
  OrderWhenAnswered();
}

void JobCheckpoints::TakeOrdered(uint32_t pserver, const HostedCut& cut, absl::Time now) {
  now_ = now;
  const bool concerns =
      open_ && !open_->committing && open_->stage != Stage::kAsking && cut.checkpoint() == number();
  if (!concerns) return;
  NoteHosted(pserver, cut, now);
  if (!open_ || open_->stage == Stage::kBegun) return;
  const bool all =
      std::all_of(open_->hosted.begin(), open_->hosted.end(),
                  [](const HostedCut& one) { return one.state() != HostedCut::STATE_UNSPECIFIED; });
  if (!all) return;
  open_->stage = Stage::kBegun;
  open_->begun_at = now;
  asked_.released = asked_.park;
}

absl::StatusOr<std::vector<RankPart>> JobCheckpoints::Parts() const {
  std::vector<RankPart> parts(worker_num_);
  std::vector<bool> known(worker_num_);  // by rank: held is that of some pserver
  for (uint32_t rank = 0; rank < worker_num_; ++rank) {
    RankPart& part = parts[rank];
    part.tasks = open_->tasks[rank];
    part.state = *open_->workers[rank];
    for (size_t i = 0; i < open_->hosted.size(); ++i) {
      const HostedCut& cut = open_->hosted[i];
      // A pserver without shards of the job holds everything.
      if (cut.least().empty()) continue;
      if (cut.least_size() != static_cast<int>(worker_num_)) {
        return absl::InternalError(absl::StrCat("pserver ", i, " reported the positions of ",
                                                cut.least_size(), " of ", worker_num_, " ranks"));
      }
      const RankPosition& held = cut.least(rank);
      const bool first = !known[rank];
      known[rank] = true;
      if (options_.mode == Mode::kGeo && !first && held.sequence() != part.held.sequence()) {
        return absl::InternalError(absl::StrCat(
            "the cuts do not belong together: pservers hold frames ", part.held.sequence(), " and ",
            held.sequence(), " of rank ", rank, ", which should have sent nothing"));
      }
      if (first) {
        part.held = held;
      } else {
        KeepLeast(held, &part.held);
      }
    }
  }
  return parts;
}

void JobCheckpoints::SetState(absl::StatusOr<CheckpointState> state, absl::Time now) {
  if (!open_) return;
  if (!state.ok()) {
    CloseOpen(std::string(state.status().message()), /*counts=*/true, now);
    return;
  }
  open_->state = *std::move(state);
}

std::optional<Manifest> JobCheckpoints::TakeCommit() {
  if (!open_ || open_->committing || !open_->state) return std::nullopt;
  for (const HostedCut& cut : open_->hosted) {
    if (cut.state() != HostedCut::WRITTEN) return std::nullopt;
  }
  for (size_t rank = 0; rank < open_->workers.size(); ++rank) {
    if (!open_->workers[rank]) return std::nullopt;
    if (options_.mode == Mode::kGeo && !open_->went_on[rank]) return std::nullopt;
  }
  open_->committing = true;
  Manifest& manifest = open_->manifest;
  manifest.set_global_step(open_->step);
  manifest.set_epochs(open_->state->result().epochs());
  *manifest.mutable_checkpoint() = *std::move(open_->state);
  open_->state.emplace();
  for (auto& worker : open_->workers) {
    if (worker->has_file()) *manifest.add_files() = worker->file();
    if (sync()) *manifest.mutable_checkpoint()->add_workers() = *std::move(worker);
  }
  for (HostedCut& cut : open_->hosted) {
    for (SavedFile& file : *cut.mutable_files()) *manifest.add_files() = std::move(file);
  }
  return manifest;
}

void JobCheckpoints::Committed(uint64_t number, const absl::Status& status, absl::Time now) {
  now_ = now;
  if (!open_ || !open_->committing || number != this->number()) return;
  CloseOpen(std::string(status.message()), /*counts=*/true, now);
}

void JobCheckpoints::CloseOpen(const std::string& error, bool counts, absl::Time now,
                               bool of_loss) {
  Outcome outcome;
  outcome.number = number();
  outcome.error = error;
  outcome.step = open_->step;
  outcome.dir = CheckpointFolder(options_.root, open_->step);
  if (error.empty()) {
    newest_.set_step(outcome.step);
    newest_.set_dir(outcome.dir);
    newest_.set_bytes(BytesOf(open_->manifest));
    newest_.set_seconds(absl::ToDoubleSeconds(now - open_->begun_at));
    newest_.set_made(newest_.made() + 1);
    newest_.clear_last_error();
    newest_cut_at_ = open_->begun_at;
    complete_ = std::move(open_->manifest);
    complete_instance_ = instance_;
  } else if (counts) {
    newest_.set_failed(newest_.failed() + 1);
    const std::string said =
        absl::StrCat("the checkpoint of step ", outcome.step, " failed: ", error);
    if (newest_.last_error().empty()) warning_ = absl::StrCat(said, "; the job continues");
    newest_.set_last_error(said);
  }
  if (!error.empty()) {
    // A shard is not saved twice at a time.
    const bool disturbed = open_->begun_at < open_->writers_stop_at;
    if (counts && open_->demanded && !open_->again && disturbed) {
      outcome.followed_by = outcome.number + 1;
      demanded_ = again_ = true;
      again_at_ = open_->writers_stop_at;
    }
    writers_stop_at_ = now + kWritersStop;
    discards_.push_back({now, {outcome.number, outcome.step, error, instance_}});
    discards_.push_back({now + kWritersStop, {outcome.number, outcome.step, "", instance_}});
  }
  if (open_->after_loss && outcome.followed_by == 0) after_loss_.reset();
  outcomes_.push_back(std::move(outcome));
  if (outcomes_.size() > kOutcomes) outcomes_.pop_front();
  over_ = number();
  if (error.empty() || (counts && !of_loss)) over_at_ = now;
  // Not later than if the interval began again.
  if (of_loss)
    by_time_from_ = std::min(writers_stop_at_, now + absl::Seconds(options_.config.every_s()));
  open_.reset();
  asked_ = {};
  ordered_ = {};
  Plan(now);
}

absl::Time JobCheckpoints::progressed_at() const {
  return open_ && !open_->committing ? open_->progressed_at : absl::InfiniteFuture();
}

std::string JobCheckpoints::Missing() const {
  constexpr size_t kNamed = 8;
  std::vector<std::string> names;
  for (size_t i = 0; i < open_->hosted.size() && open_->stage != Stage::kAsking; ++i) {
    if (open_->hosted[i].state() != HostedCut::WRITTEN)
      names.push_back(absl::StrCat("pserver ", i));
  }
  for (size_t i = 0; i < open_->workers.size(); ++i) {
    const bool parked = asked_.released && !open_->went_on[i];
    if (!open_->workers[i] || parked) names.push_back(absl::StrCat("rank ", i));
  }
  const size_t more = names.size() > kNamed ? names.size() - kNamed : 0;
  names.resize(names.size() - more);
  if (more > 0) names.push_back(absl::StrCat(more, " more"));
  return absl::StrJoin(names, ", ");
}

void JobCheckpoints::GiveUp(const std::string& why, absl::Time now) {
  if (open_ && !open_->committing) CloseOpen(why, /*counts=*/true, now);
}

void JobCheckpoints::GiveUpWaiting(absl::Duration waited, absl::Time now) {
  if (!open_ || open_->committing) return;
  CloseOpen(absl::StrCat("no progress within ", absl::FormatDuration(waited),
                         " (limits.wait_s); not done: ", Missing()),
            /*counts=*/true, now);
}

void JobCheckpoints::Interrupt(absl::Time now) {
  interrupted_ = true;
  end_due_ = EndDue::kNone;
  all_training_ = false;
  asked_ = {};
  ordered_ = {};
  after_loss_.reset();
  if (open_ && !open_->committing)
    CloseOpen("the job lost a member before the checkpoint was complete", /*counts=*/false, now);
}

void JobCheckpoints::Restart(const NextRun& run, absl::Time now) {
  interrupted_ = held_ = false;
  instance_ = run.instance;
  worker_num_ = run.worker_num;
  pserver_num_ = run.pserver_num;
  without_shards_ = run.without_shards;
  all_training_ = false;
  more_training_ = true;
  step_ = limit_ = asked_from_ = run.first_step;
  steps_per_s_ = 0;
  step_at_ = now;
  Plan(now);
}

void JobCheckpoints::End(absl::Time now) {
  now_ = now;
  stopped_ = true;
  asked_ = {};
  ordered_ = {};
  if (open_ && !open_->committing)
    CloseOpen("the job ended before the checkpoint was complete", /*counts=*/false, now);
}

uint64_t JobCheckpoints::Followed(uint64_t number) const {
  // By rising numbers.
  for (const Outcome& outcome : outcomes_) {
    if (outcome.number == number && outcome.followed_by != 0) number = outcome.followed_by;
  }
  return number;
}

const JobCheckpoints::Outcome* JobCheckpoints::OutcomeOf(uint64_t number) const {
  for (const Outcome& outcome : outcomes_) {
    if (outcome.number == number) return &outcome;
  }
  return nullptr;
}

std::vector<JobCheckpoints::Discard> JobCheckpoints::TakeDiscards(absl::Time now) {
  std::vector<Discard> due;
  std::vector<std::pair<absl::Time, Discard>> later;
  for (const auto& [time, discard] : std::exchange(discards_, {})) {
    // An ended job writes no more.
    if (time <= now || stopped_) {
      due.push_back(discard);
    } else {
      later.push_back({time, discard});
    }
  }
  discards_ = std::move(later);
  return due;
}

std::string JobCheckpoints::TakeWarning() { return std::exchange(warning_, ""); }

CheckpointStatus JobCheckpoints::status() const {
  CheckpointStatus status = newest_;
  const CheckpointConfig& config = options_.config;
  const bool due = config.every_s() > 0 || config.every_steps() > 0 || config.every_epochs() > 0;
  const absl::Time since = status.step() > 0 ? newest_cut_at_ : first_run_at_;
  if (status.step() > 0 || due)
    status.set_age_s(std::max(0.0, absl::ToDoubleSeconds(now_ - since)));
  if (open_ && open_->committing) {
    status.set_doing(absl::StrCat("completing step ", open_->step));
  } else if (open_ && open_->stage == Stage::kAsking) {
    status.set_doing(absl::StrCat("asking the ranks for their parts of step ", open_->step));
  } else if (open_) {
    uint64_t written = 0;
    for (const HostedCut& cut : open_->hosted) written += cut.written_bytes();
    status.set_doing(
        absl::StrFormat("writing step %d (%.1f MiB so far)", open_->step, written / kMiB));
  }
  return status;
}

}  // namespace sluice
