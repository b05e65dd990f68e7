#include "scheduler/job/job_checkpoints.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/saved_model/checkpoint.h"
#include "common/saved_model/export_chain.h"
#include "common/saved_model/saved_model.h"
#include "common/saved_model/shard_file.h"

namespace sluice {
namespace {

constexpr double kMiB = 1 << 20;

}  // namespace

JobCheckpoints::JobCheckpoints(Options options, absl::Time now)
    : options_(std::move(options)),
      pace_(options_.config, options_.first_step, now),
      now_(now),
      results_(options_.root, now) {
  if (options_.exports) {
    exports_ = std::make_unique<ExportPlan>(*options_.exports, options_.export_root,
                                            options_.first_step, now);
    if (options_.over > 0) exports_->FollowsScheduler();
  }
  Plan(now);
}

void JobCheckpoints::SetNewest(const Manifest& manifest, absl::Duration age, absl::Time now,
                               Maker maker) {
  // A cut ahead of this clock would keep the interval from ever passing.
  const absl::Time cut_at = now - std::max(age, absl::ZeroDuration());
  const bool of_job = maker != Maker::kOtherJob;
  // Shards that are lost continue only from a checkpoint of this run: one of an earlier attempt has
  // other positions of the ranks.
  results_.SetNewest(manifest, cut_at, of_job,
                     maker == Maker::kThisRun ? std::make_optional(instance_) : std::nullopt);
  if (of_job) pace_.BeginInterval(cut_at);
}

void JobCheckpoints::NoteStep(uint64_t step, absl::Time now) {
  now_ = now;
  pace_.NoteStep(step);
  if (exports_) exports_->pace().NoteStep(step);
}

void JobCheckpoints::NoteNamed(uint64_t number, uint64_t step, absl::Time now) {
  // Opens it, unless a report has done so or it is over.
  if (sync() && !open_) Concerns(number, "rank 0", step, now);
}

void JobCheckpoints::EpochEnds(EpochEnd end, absl::Time now) {
  now_ = now;
  // held_: the checkpoint after the loss is also that of the end.
  if (stopped_ || interrupted_ || held_ || epoch_end_noted(end.epoch)) return;
  // A rank that is lost cannot make its part, and its next life begins after this epoch.
  if (AsksAll(end) && !training_.all_ranks) return;
  noted_end_ = end.epoch;
  if (sync() && open_ && !open_->is_export && open_->step == end.step) {
    // Rank 0 has named this one in its commit of the last step. If it fails before the next epoch
    // begins, the end gets one by order. Ranks that keep tables are asked for them only while
    // they train.
    open_->ends_training = end.last;
    if (training_.ranks_keep_tables || !pace_.DueAfterEpoch(end.epoch, end.last)) return;
    end_ = std::move(end);
    end_begun_ = true;
    return;
  }
  const bool due = demanded_ || pace_.DueAfterEpoch(end.epoch, end.last);
  // Also if the job has gone back to the checkpoint that was made when its program had ended it.
  const bool made = results_.IsOfEnd(end.epoch) || (sync() && results_.IsOfStep(end.step));
  if (!due || made) return;
  end_ = std::move(end);
  end_begun_ = false;
  Plan(now);
}

void JobCheckpoints::EpochBegins(absl::Time now) {
  end_.reset();
  if (!open_) return;
  open_->ends_training = false;
  // Its cuts would lie in this epoch, but its state is of the end of the one before.
  if (open_->of_end && open_->stage != Stage::kBegun)
    CloseOpen("training went on", /*counts=*/false, now);
}

void JobCheckpoints::PlanEnd(absl::Time now) {
  const bool asks_all = end_ && AsksAll(*end_);
  const bool possible = asks_all
                            ? training_.all_ranks
                            : !training_.ranks_keep_tables || training_.tables_from.has_value();
  if (!possible && training_.pservers_served) end_.reset();
  if (!end_ || !training_.pservers_served || now < again_at_) return;
  if (asks_all) {
    Ask(Kind::kCheckpoint, end_->step, now);
  } else {
    Begin(number(), FolderStep(end_->step), Stage::kAsking, now);
    pace_.NoteAsked();
    asked_ = {};
    if (training_.ranks_keep_tables) {
      asked_.number = number();
      asked_.by_order = true;
      asked_.at_step = end_->step;
      asked_.only = training_.tables_from;
    }
    for (uint32_t rank = 0; rank < end_->workers.size(); ++rank) {
      if (rank != asked_.only) open_->parts.TakeLost(rank, end_->workers[rank]);
    }
    open_->state = end_->state;
    open_->state->set_global_step(open_->step);
  }
  open_->of_end = end_->epoch;
  open_->asks_all = asks_all;
  open_->ends_training = end_->last;
  // If the files of one before, which was given up, disturb it, it is tried once more. At the end
  // of another epoch training does not wait for that.
  open_->demanded = open_->demanded || end_->last;
  end_begun_ = false;
  OrderWhenAnswered();
}

uint64_t JobCheckpoints::FolderStep(uint64_t step) const {
  // Step 0 has no folder: 0 means that there is no checkpoint.
  return sync() ? step : std::max(step, results_.newest_step() + 1);
}

void JobCheckpoints::PlanNow(absl::Time now) {
  if (open_ || interrupted_ || !training_.all_ranks || !can_begin()) return;
  const bool checkpoint = due_on_demand(now) || pace_.DueByTime(now) || pace_.DueBySteps();
  if (exports_ && exports_->DueNow(now) && (!checkpoint || ExportGoesFirst(now))) {
    Ask(Kind::kExport, pace_.step(), now);
  } else if (checkpoint) {
    Ask(Kind::kCheckpoint, pace_.step(), now);
  }
}

void JobCheckpoints::Ask(Kind kind, uint64_t step, absl::Time now) {
  Begin(NumberAfter(over_, kind), kind == Kind::kExport ? step : FolderStep(step), Stage::kAsking,
        now);
  asked_ = {};
  asked_.number = number();
  asked_.park = options_.mode == Mode::kGeo;
  asked_.step = open_->step;
  asked_.ranks_write = asked_.park || (kind == Kind::kCheckpoint && options_.ranks_write);
}

void JobCheckpoints::Begin(uint64_t number, uint64_t step, Stage stage, absl::Time now) {
  open_.emplace(CheckpointParts(options_.mode, worker_num_, pserver_num_, without_shards_));
  open_->number = number;
  open_->is_export = turns_.KindOf(number) == Kind::kExport;
  open_->stage = stage;
  open_->step = step;
  open_->begun_at = open_->progressed_at = now;
  if (open_->is_export) {
    exports_->pace().NoteAsked();
    const uint64_t skipped = NumberAfter(over_, Kind::kCheckpoint);
    if (demanded_ && skipped < number) {
      // Its caller was given a number that this export has overtaken.
      results_.Skip(skipped, "an export came first", NumberAfter(number, Kind::kCheckpoint));
    }
    return;
  }
  pace_.NoteAsked();
  open_->demanded = std::exchange(demanded_, false);
  open_->again = std::exchange(again_, false);
  // If this checkpoint was asked for and fails, this tells whether writers of the one before may
  // have disturbed it. Then it is tried again.
  open_->writers_stop_at = results_.writers_stop_at();
  again_at_ = absl::InfinitePast();
}

void JobCheckpoints::Plan(absl::Time now) {
  now_ = now;
  GiveUpSlowExport(now);
  if (end_ && !open_ && !held_ && !interrupted_ && !stopped_) PlanEnd(now);
  if (!sync()) return PlanNow(now);
  if (held_) return PlanAfterLoss(now);
  // A request for a commit that no rank will make would never be answered.
  if (!can_begin()) asked_ = by_order() ? asked_ : Asked{};
  if (open_ || !can_begin() || interrupted_) return;
  asked_ = NextByCommit(now);
}

JobCheckpoints::Asked JobCheckpoints::NextByCommit(absl::Time now) const {
  Asked asked;
  const uint64_t every_steps = options_.config.every_steps();
  bool now_due = due_on_demand(now) || pace_.DueByTime(now);
  // Rank 0 knows one rule at a time, so in a job with exports multiples can pass.
  now_due = now_due || (exports_ && pace_.DueBySteps());
  const bool export_due = exports_ && exports_->DueNow(now);
  if (export_due && now_due) now_due = !ExportGoesFirst(now);
  if (now_due || (every_steps > 0 && !exports_)) {
    asked.number = NumberAfter(over_, Kind::kCheckpoint);
    asked.every_steps = now_due ? 0 : every_steps;
    return asked;
  }
  if (!exports_) return asked;
  if (export_due) {
    asked.number = NumberAfter(over_, Kind::kExport);
    return asked;
  }
  // The multiple that comes first; of two for one step the checkpoint.
  const auto next = [step = pace_.step()](uint64_t every) {
    return every > 0 ? (step / every + 1) * every : UINT64_MAX;
  };
  const uint64_t of_export = exports_->every_steps();
  if (every_steps == 0 && of_export == 0) return asked;
  const bool is_export = next(of_export) < next(every_steps);
  asked.number = NumberAfter(over_, is_export ? Kind::kExport : Kind::kCheckpoint);
  asked.every_steps = is_export ? of_export : every_steps;
  return asked;
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
  Begin(number(), after_loss_->step, Stage::kAsking, now);
  open_->after_loss = open_->demanded = true;
  for (const auto& [rank, state] : after_loss_->lost) open_->parts.TakeLost(rank, state);
  // All ranks answer, and not rank 0 alone: each one has to stop after exactly this step.
  asked_ = {};
  asked_.number = number();
  asked_.by_order = true;
  asked_.at_step = open_->step;
  OrderWhenAnswered();
}

void JobCheckpoints::OrderWhenAnswered() {
  if (open_->stage != Stage::kAsking || !open_->parts.AllRanksAnswered()) return;
  open_->stage = Stage::kOrdered;
  // Within an epoch of async, the ranks' answers say how far they are; ranks that write files had
  // to know the folder before they answered.
  if (options_.mode == Mode::kAsync && !open_->of_end && !asked_.ranks_write) {
    const uint64_t step = training_.steps.At(open_->parts.Steps());
    open_->step = open_->is_export ? step : FolderStep(step);
  }
  ordered_ = {number(), open_->step, {}};
  BeginWhenOrdered();
}

void JobCheckpoints::BeginWhenOrdered() {
  if (!open_ || open_->stage != Stage::kOrdered || !open_->parts.AllCutsBegun()) return;
  open_->stage = Stage::kBegun;
  open_->begun_at = now_;
  if (open_->of_end) {
    end_begun_ = true;
    // Later values are not those of the epoch's end, and a rank does not make its part once more.
    if (!open_->ends_training || open_->asks_all) end_.reset();
  }
  // Only now: a rank that went on earlier could push a frame that some cuts include and others do
  // not.
  asked_.released = asked_.park;
}

uint64_t JobCheckpoints::Demand(absl::Time now) {
  // The open one does not include the steps since it began.
  const uint64_t next = NumberAfter(open_ ? number() : over_, Kind::kCheckpoint);
  demanded_ = true;
  if (open_ && open_->is_export && !open_->committing) {
    GiveUpExportForDemand(now);
  } else {
    Plan(now);
  }
  return next;
}

void JobCheckpoints::GiveUpExportForDemand(absl::Time now) {
  // Whoever asks may be about to stop the job, and an export may take minutes.
  CloseOpen("a checkpoint was asked for", /*counts=*/false, now);
}

void JobCheckpoints::GiveUpSlowExport(absl::Time now) {
  if (!open_ || !open_->is_export || open_->committing || stopped_ || interrupted_) return;
  const bool can_ask = can_begin() && (sync() || training_.all_ranks);
  const bool due = end_ || (can_ask && (pace_.DueByTime(now) || pace_.DueBySteps()));
  if (!due) return;
  if (!turns_.GivesWay(now)) return;
  // Its writers may disturb the checkpoint, which is then tried once more.
  demanded_ = true;
  CloseOpen(
      absl::StrCat("a checkpoint has waited for it for ", absl::FormatDuration(ExportTurns::kWait)),
      /*counts=*/false, now);
}

bool JobCheckpoints::Concerns(uint64_t number, const std::string& who, uint64_t step,
                              absl::Time now) {
  now_ = now;
  // Reports of numbers that are over arrive late. A number beyond the next one was never given.
  const bool next =
      open_ ? number == open_->number : number == NumberAfter(over_, turns_.KindOf(number));
  if (!next || interrupted_) return false;
  if (!open_) {
    // Sync: whoever reports first opens the checkpoint. Members make their parts by themselves,
    // after the step that rank 0 was told.
    NoteStep(step, now);
    Begin(number, step, Stage::kBegun, now);
    // Another worker of rank 0 would name what was asked for in its place.
    if (asked_.number != number) asked_ = {};
    if (open_->is_export && demanded_) {
      // Rank 0 had named it before it heard of the demand.
      GiveUpExportForDemand(now);
      return false;
    }
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
  // Such a pserver is never waited for. Its report must not count as a part.
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
  for (const SavedFile& file : cut.files()) {
    // The name goes into the manifest and is opened by whoever resumes. A pserver must not name a
    // path outside the folder, or a file of another member.
    if (IsShardFileName(file.name())) continue;
    return CloseForName(absl::StrCat("pserver ", pserver), file.name(), now);
  }
  if (open_->parts.TakeHosted(pserver, cut)) open_->progressed_at = now;
}

void JobCheckpoints::NoteWorker(const WorkerCut& cut, absl::Time now) {
  const std::string who = absl::StrCat("rank ", cut.rank());
  const WorkerState& state = cut.state();
  // As for pservers: a rank names only files of its own.
  if (state.has_file() &&
      !(IsWorkerFileName(state.file().name()) &&
        absl::StartsWith(state.file().name(), WorkerFileName(cut.rank(), "")))) {
    return CloseForName(who, state.file().name(), now);
  }
  for (const SavedFile& file : state.dense_files()) {
    if (!IsShardFileName(file.name())) return CloseForName(who, file.name(), now);
  }
  if (open_->parts.TakeWorker(cut)) open_->progressed_at = now;
}

void JobCheckpoints::CloseForName(const std::string& who, const std::string& name, absl::Time now) {
  CloseOpen(absl::StrCat(who, " reports the file '", name, "', which is not a name of its files"),
            /*counts=*/true, now);
}

void JobCheckpoints::TakeWorker(const WorkerCut& cut, absl::Time now) {
  if (cut.rank() >= worker_num_) return;
  if (by_order()) return TakeAsked(cut, now);
  if (!Concerns(cut.checkpoint(), absl::StrCat("rank ", cut.rank()), cut.step(), now)) return;
  NoteWorker(cut, now);
}

void JobCheckpoints::RankLost(uint32_t rank, absl::Time now) {
  now_ = now;
  after_loss_.reset();
  if (open_) {
    if (open_->committing) return;
    // A cut that begins later would be one of the rank's next worker.
    const bool cuts_with_ranks = !open_->of_end || open_->asks_all;
    if (open_->parts.RankComplete(rank) && (open_->stage == Stage::kBegun || !cuts_with_ranks))
      return;
    CloseOpen(absl::StrCat("rank ", rank, " was lost before it had made its part"),
              /*counts=*/true, now, /*of_loss=*/true);
    return;
  }
  // Nothing is open, but the lost worker may have been asked already. If it made its part before it
  // died, that part must not meet those of the next life: the number is used up.
  if (asked_.number == 0) return;
  // It may have been asked for either.
  const uint64_t used = exports_ ? std::max(number(), NumberAfter(over_, Kind::kExport)) : number();
  results_.Skip(number(), absl::StrCat("rank ", rank, " was lost before the checkpoint began"),
                demanded_ ? NumberAfter(used, Kind::kCheckpoint) : 0);
  results_.ExpectWriters(now);
  over_ = used;
  asked_ = {};
  Plan(now);
}

void JobCheckpoints::Hold(absl::Time now) {
  held_ = true;
  if (open_ && open_->is_export && !open_->committing)
    CloseOpen("the job continues without a lost rank", /*counts=*/false, now);
}

void JobCheckpoints::PserverLost(uint32_t pserver, absl::Time now) {
  now_ = now;
  // Nobody takes over its shards in this run.
  end_.reset();
  // Written files stay on disk, whatever becomes of their writer.
  if (!open_ || open_->committing || open_->parts.Written(pserver)) return;
  CloseOpen(absl::StrCat("pserver ", pserver, " was lost"), /*counts=*/true, now,
            /*of_loss=*/true);
}

void JobCheckpoints::ShardsLost(uint32_t pserver, absl::Time now) {
  now_ = now;
  // Another process makes them again, from copies or from a checkpoint; in async without some of
  // the updates that the newest export has.
  EndExportChain(absl::StrCat("pserver ", pserver, " was lost, and its shards were made again"));
  if (!open_ || open_->committing) return;
  CloseOpen(absl::StrCat("pserver ", pserver, " was lost"), /*counts=*/true, now,
            /*of_loss=*/true);
}

void JobCheckpoints::EndExportChain(const std::string& why) {
  if (!exports_) return;
  exports_->EndChain(why);
  if (committing() && open_->is_export) open_->chain_ends = why;
}

void JobCheckpoints::TakeAsked(const WorkerCut& cut, absl::Time now) {
  now_ = now;
  if (!open_ || open_->committing || cut.checkpoint() != number()) return;
  const uint32_t rank = cut.rank();
  // A rank that has not heard yet that the number is used may name it in a commit of the next
  // epoch.
  if (open_->of_end && open_->parts.RankComplete(rank)) return;
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
  // A parked rank confirms once it is released. Before that it must have pushed nothing.
  const bool went_on = options_.mode == Mode::kGeo && !cut.parked();
  if (went_on && open_->stage != Stage::kBegun) {
    CloseOpen(absl::StrCat(who, " continued training before all pservers had begun their cuts"),
              /*counts=*/true, now);
    return;
  }
  NoteWorker(cut, now);
  if (open_) OrderWhenAnswered();
}

void JobCheckpoints::TakeOrdered(uint32_t pserver, const HostedCut& cut, absl::Time now) {
  now_ = now;
  const bool concerns =
      open_ && !open_->committing && open_->stage != Stage::kAsking && cut.checkpoint() == number();
  if (!concerns) return;
  NoteHosted(pserver, cut, now);
  BeginWhenOrdered();
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
  if (!open_ || open_->committing || !open_->state || !open_->parts.Complete()) return std::nullopt;
  // From here on the outcome is decided by the disk: a manifest that is being renamed cannot be
  // called back. Losses do not end it any more.
  Manifest& manifest = open_->manifest;
  if (open_->is_export) {
    const absl::Status whole =
        exports_->Fill(open_->parts.hosted(), instance_, open_->number, manifest.mutable_export_());
    if (!whole.ok()) {
      CloseOpen(std::string(whole.message()), /*counts=*/false, now_);
      return std::nullopt;
    }
  }
  open_->committing = true;
  manifest.set_global_step(open_->step);
  manifest.set_epochs(open_->state->result().epochs());
  // The state moves out; an empty one stays, so that needs_state() does not ask for it again.
  *manifest.mutable_checkpoint() = *std::move(open_->state);
  open_->state.emplace();
  open_->parts.MoveTo(&manifest);
  // A base or delta is a model: it has no positions of ranks.
  if (open_->is_export) manifest.clear_checkpoint();
  return manifest;
}

void JobCheckpoints::Committed(uint64_t number, const absl::Status& status, absl::Time now) {
  now_ = now;
  if (!open_ || !open_->committing || number != this->number()) return;
  CloseOpen(std::string(status.message()), /*counts=*/true, now);
}

void JobCheckpoints::CloseOpen(const std::string& error, bool counts, absl::Time now,
                               bool of_loss) {
  if (open_->is_export) return CloseExport(error, counts && !of_loss, now);
  uint64_t followed_by = 0;
  if (error.empty()) {
    // The commit of the epoch's last step named it, so the end needs none by order.
    if (sync() && end_ && open_->step == end_->step) end_.reset();
    results_.Complete(number(), std::move(open_->manifest), instance_, open_->begun_at, now);
  } else {
    // A shard is not saved twice at a time.
    const bool disturbed = open_->begun_at < open_->writers_stop_at;
    if (counts && open_->demanded && !open_->again && disturbed) {
      followed_by = NumberAfter(number(), Kind::kCheckpoint);
      demanded_ = again_ = true;
      again_at_ = open_->writers_stop_at;
    }
    results_.GiveUp({number(), open_->step, error, instance_}, counts, followed_by, now);
  }
  if (open_->after_loss && followed_by == 0) after_loss_.reset();
  // The end of a later epoch may wait for this one to be over.
  if (end_ && open_->of_end == end_->epoch && !of_loss && followed_by == 0) end_.reset();
  over_ = number();
  turns_.CheckpointOver();
  // A failure begins the interval again, or a full disk would be tried at every tick.
  if (error.empty() || (counts && !of_loss)) pace_.BeginInterval(now);
  if (of_loss) pace_.NoteLoss(results_.writers_stop_at(), now);
  open_.reset();
  asked_ = {};
  ordered_ = {};
  Plan(now);
}

void JobCheckpoints::CloseExport(const std::string& error, bool counts, absl::Time now) {
  if (error.empty()) {
    exports_->Completed(open_->manifest, ExportFolder(exports_->root(), instance_, open_->number),
                        open_->begun_at, now);
    if (!open_->chain_ends.empty()) exports_->EndChain(open_->chain_ends);
  } else {
    // A manifest that could not be written may be in force all the same, so no delta may follow
    // the export before it.
    if (open_->committing) exports_->EndChain(absl::StrCat("an export failed: ", error));
    exports_->Failed(error, open_->step, counts);
    results_.DiscardFiles({open_->number, open_->step, error, instance_, /*is_export=*/true}, now);
    // A failure begins the interval again, or a full disk would be tried at every tick.
    if (counts) exports_->pace().BeginInterval(now);
    exports_->pace().NoteLoss(results_.writers_stop_at(), now);
  }
  over_ = open_->number;
  turns_.ExportOver(/*given_up=*/!error.empty() && !counts);
  // What passed meanwhile is made up for, but an end that waited for this one goes first.
  open_.reset();
  asked_ = {};
  ordered_ = {};
  Plan(now);
}

std::optional<ExportStatus> JobCheckpoints::export_status() const {
  if (!exports_) return std::nullopt;
  ExportStatus status = exports_->status(now_);
  if (open_ && open_->is_export) {
    status.set_doing(absl::StrFormat("%s step %d (%.1f MiB so far)",
                                     open_->committing ? "completing" : "writing", open_->step,
                                     open_->parts.written_bytes() / kMiB));
  }
  return status;
}

absl::Time JobCheckpoints::progressed_at() const {
  return open_ && !open_->committing ? open_->progressed_at : absl::InfiniteFuture();
}

void JobCheckpoints::GiveUp(const std::string& why, absl::Time now) {
  if (open_ && !open_->committing) CloseOpen(why, /*counts=*/true, now);
}

void JobCheckpoints::GiveUpWaiting(absl::Duration waited, absl::Time now) {
  if (!open_ || open_->committing) return;
  const std::string missing = open_->parts.Missing(/*of_pservers=*/open_->stage != Stage::kAsking);
  CloseOpen(absl::StrCat("no progress within ", absl::FormatDuration(waited),
                         " (limits.wait_s); not done: ", missing),
            /*counts=*/true, now);
}

void JobCheckpoints::Interrupt(absl::Time now) {
  interrupted_ = true;
  end_.reset();
  training_.all_ranks = false;
  asked_ = {};
  ordered_ = {};
  after_loss_.reset();
  if (open_ && !open_->committing)
    CloseOpen("the job lost a member before it was complete", /*counts=*/false, now);
}

void JobCheckpoints::Restart(const NextRun& run, absl::Time now) {
  interrupted_ = held_ = false;
  if (instance_ != run.instance) EndExportChain("the job continues as another run");
  instance_ = run.instance;
  worker_num_ = run.worker_num;
  pserver_num_ = run.pserver_num;
  without_shards_ = run.without_shards;
  training_ = {};
  noted_end_.reset();
  // The run begins at an older checkpoint and trains to that end again.
  results_.GoBack(run.first_step);
  pace_.Restart(run.first_step);
  if (exports_) exports_->pace().Restart(run.first_step);
  Plan(now);
}

void JobCheckpoints::End(absl::Time now) {
  now_ = now;
  stopped_ = true;
  end_.reset();
  asked_ = {};
  ordered_ = {};
  if (open_ && !open_->committing)
    CloseOpen("the job ended before it was complete", /*counts=*/false, now);
}

std::string JobCheckpoints::TakeWarning() {
  const std::string warning = results_.TakeWarning();
  return warning.empty() && exports_ ? exports_->TakeWarning() : warning;
}

CheckpointStatus JobCheckpoints::status() const {
  CheckpointStatus status = results_.status(pace_.has_rules(), now_);
  if (open_ && open_->is_export) return status;
  if (open_ && open_->committing) {
    status.set_doing(absl::StrCat("completing step ", open_->step));
  } else if (open_ && open_->stage == Stage::kAsking) {
    status.set_doing(absl::StrCat("asking the ranks for their parts of step ", open_->step));
  } else if (open_) {
    status.set_doing(absl::StrFormat("writing step %d (%.1f MiB so far)", open_->step,
                                     open_->parts.written_bytes() / kMiB));
  }
  return status;
}

}  // namespace sluice
