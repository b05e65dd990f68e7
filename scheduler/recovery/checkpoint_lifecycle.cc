#include "scheduler/recovery/checkpoint_lifecycle.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/job_config.h"
#include "common/config/mode.h"
#include "common/config/output_folder.h"
#include "common/config/own_data.h"
#include "common/saved_model/checkpoint.h"
#include "scheduler/job/resume_point.h"
#include "scheduler/recovery/member_loss.h"

namespace sluice {
namespace {

// Global steps that the workers have reported; in async and Geo the mean of their own steps.
uint64_t ReportedStep(const Job& job, const Membership& members) {
  uint64_t most = 0, sum = 0;
  for (const RankSlot& slot : job.ranks.slots()) {
    const Member* member = members.ById(slot.member_id());
    // A late report of an earlier attempt may be ahead of this one.
    if (member == nullptr || !IsOfLife(job, slot, member->progress)) continue;
    most = std::max<uint64_t>(most, member->progress.step());
    sum += member->progress.step();
  }
  if (ModeOf(job.config().strategy()) == Mode::kSync) return most;
  // A vacant rank counts as 0: the mean may be too small for a moment, and a checkpoint a little
  // late.
  return sum / std::max<size_t>(job.ranks.slots().size(), 1);
}

CheckpointJobReply ReplyOf(const JobCheckpoints::Outcome& outcome) {
  CheckpointJobReply reply;
  reply.set_number(outcome.number);
  reply.set_done(true);
  reply.set_error(outcome.error);
  reply.set_dir(outcome.dir);
  reply.set_step(outcome.step);
  return reply;
}

// The lowest rank that is not vacant.
uint32_t FirstServed(const Job& job) {
  uint32_t rank = 0;
  // At least one rank is served, or the job would not continue.
  while (job.ranks.is_vacant(rank)) ++rank;
  return rank;
}

// The present attempt has made this checkpoint.
bool IsOfRun(const Job& job, const Manifest& manifest) {
  return IsOfInstances(manifest, {job.spec().instance()});
}

// Those that the run itself has counted are in the result already.
void AddReplayed(const Job& job, CheckpointState* state) {
  const uint64_t replayed = job.recovery.counts().examples_replayed();
  if (replayed > 0) state->mutable_result()->mutable_recovery()->set_examples_replayed(replayed);
}

// The job's pservers, as indices in the route, that hold none of its shards.
std::vector<uint32_t> WithoutShards(const Job& job) {
  std::vector<bool> owns(job.pservers.members().size());
  for (const TableRoute& table : job.spec().route().tables()) {
    for (const uint32_t owner : table.owner()) owns[owner] = true;
  }
  std::vector<uint32_t> without;
  for (uint32_t i = 0; i < owns.size(); ++i) {
    if (!owns[i]) without.push_back(i);
  }
  return without;
}

OutputAction CheckpointActionOf(const Job& job, OutputAction::Kind kind, uint64_t instance,
                                uint64_t number, absl::Time time) {
  OutputAction action = ActionOf(job, kind, time);
  action.save_id = CheckpointSaveId(instance, number);
  action.number = number;
  return action;
}

}  // namespace

void CheckpointLifecycle::Begin(Job* job, absl::Time now) {
  if (!CanCheckpoint(job->config())) return;
  if (job->checkpoints()) {
    JobCheckpoints::NextRun run;
    run.instance = job->spec().instance();
    run.first_step = job->attempt.point() ? job->attempt.point()->state().global_step() : 0;
    run.worker_num = job->spec().worker_num();
    run.pserver_num = static_cast<uint32_t>(job->pservers.members().size());
    run.without_shards = WithoutShards(*job);
    job->checkpoints()->Restart(run, now);
    job->ledger.ToldWorkers();
    return;
  }
  JobCheckpoints::Options options = OptionsOf(*job);
  if (job->attempt.point()) options.first_step = job->attempt.point()->state().global_step();
  job->ledger.Begin(std::move(options), now);
  if (job->attempt.point()) {
    // An earlier scheduler may have led the job's attempts so far.
    const bool own = IsOfInstances(job->attempt.point()->manifest, job->attempt.instances());
    job->checkpoints()->SetNewest(
        job->attempt.point()->manifest, job->attempt.point()->age, now,
        own ? JobCheckpoints::Maker::kThisJob : JobCheckpoints::Maker::kOtherJob);
  }
  // The assignments and orders that the members get next say what is asked.
  job->ledger.ToldWorkers();
}

JobCheckpoints::Options CheckpointLifecycle::OptionsOf(const Job& job) {
  JobCheckpoints::Options options;
  options.config = job.config().checkpoint();
  options.root = CheckpointRoot(job.config());
  options.worker_num = job.spec().worker_num();
  options.pserver_num = static_cast<uint32_t>(job.pservers.members().size());
  options.without_shards = WithoutShards(job);
  options.instance = job.spec().instance();
  options.mode = ModeOf(job.config().strategy());
  // The state of a source, if it has one.
  options.ranks_write = options.mode == Mode::kAsync && ProgramGivesData(job.config());
  if (job.config().has_export_()) {
    options.exports = job.config().export_();
    options.export_root = ExportRoot(job.config());
  }
  return options;
}

void CheckpointLifecycle::Adopt(Job* job,
                                const absl::StatusOr<std::unique_ptr<const ResumePoint>>& newest,
                                uint64_t over, absl::Time now) {
  if (!CanCheckpoint(job->config())) return;
  JobCheckpoints::Options options = OptionsOf(*job);
  options.first_step = std::max(job->run()->least_step(), ReportedStep(*job, *parts_.members));
  // The numbers go on after those that members have seen.
  options.over = over;
  const std::string root = options.root;
  job->ledger.Begin(std::move(options), now);
  job->ledger.SetNewestUnusable(newest.status());
  if (newest.ok() && *newest != nullptr) {
    const ResumePoint& point = **newest;
    JobCheckpoints::Maker maker = JobCheckpoints::Maker::kOtherJob;
    if (IsOfRun(*job, point.manifest)) {
      maker = JobCheckpoints::Maker::kThisRun;
    } else if (point.dir == CheckpointFolder(root, point.manifest.global_step())) {
      maker = JobCheckpoints::Maker::kThisJob;
    }
    job->checkpoints()->SetNewest(point.manifest, point.age, now, maker);
  }
  job->ledger.ToldWorkers();
  job->ledger.ToldOver();
  PhaseChanged(job, now);
}

void CheckpointLifecycle::Interrupt(Job* job, absl::Time now) {
  if (!job->checkpoints()) return;
  job->checkpoints()->Interrupt(now);
  Apply(job, now);
}

void CheckpointLifecycle::MemberLost(Job* job, const Member& member, absl::Time now) {
  if (!job->checkpoints() || job->over()) return;
  if (const auto index = job->pservers.IndexOf(member.id)) {
    job->checkpoints()->PserverLost(*index, now);
  } else if (const auto rank = job->ranks.RankOf(member.id)) {
    job->checkpoints()->RankLost(*rank, now);
  }
  Apply(job, now);
}

std::unique_ptr<const ResumePoint> CheckpointLifecycle::NewestPoint(const Job& job) const {
  if (!job.checkpoints() || job.checkpoints()->newest_manifest() == nullptr) return nullptr;
  auto point = std::make_unique<ResumePoint>();
  point->manifest = *job.checkpoints()->newest_manifest();
  point->dir = CheckpointFolder(CheckpointRoot(job.config()), point->manifest.global_step());
  return point;
}

std::string CheckpointLifecycle::NewestOfInstance(const Job& job) {
  if (!job.checkpoints() || job.checkpoints()->newest_manifest() == nullptr) return "";
  if (job.checkpoints()->newest_instance() != job.spec().instance()) return "";
  return CheckpointFolder(CheckpointRoot(job.config()),
                          job.checkpoints()->newest_manifest()->global_step());
}

void CheckpointLifecycle::AddOrder(const Job& job, uint32_t index, PollReply* reply) {
  if (!job.checkpoints()) return;
  CutOrder* const order = reply->add_cuts();
  order->set_job_id(job.id());
  order->set_instance(job.spec().instance());
  // Even without a cut to begin: pservers drop what they hold of numbers that are over.
  order->set_over(job.checkpoints()->over());
  if (job.deletion.MayTell(job.checkpoints()->ordered().number)) {
    order->set_now(job.checkpoints()->ordered().number);
    order->set_step(job.checkpoints()->ordered().step);
  }
  job.deletion.AddTo(index, order);
  const std::vector<uint64_t> since = job.checkpoints()->ordered().export_since;
  order->mutable_export_since()->Assign(since.begin(), since.end());
  if (job.ranks.removal())
    order->mutable_commits()->Assign(job.ranks.removal()->commits.begin(),
                                     job.ranks.removal()->commits.end());
}

void CheckpointLifecycle::AddAsked(const Job& job, WorkerAssignment* assignment) {
  if (!job.checkpoints()) return;
  const JobCheckpoints::Asked& asked = job.checkpoints()->asked();
  const bool by_commit = ModeOf(job.config().strategy()) == Mode::kSync && !asked.by_order;
  if (asked.number == 0 || (by_commit && assignment->rank() != 0)) return;
  if (!job.deletion.MayTell(asked.number)) return;
  if (asked.only.has_value() && assignment->rank() != *asked.only) return;
  WorkerCheckpoint* const wanted = assignment->mutable_checkpoint();
  wanted->set_number(asked.number);
  wanted->set_every_steps(asked.every_steps);
  wanted->set_after(job.checkpoints()->over() + 1);
  wanted->set_at_step(asked.at_step);
  wanted->set_by_order(asked.by_order);
  // Tables that the ranks keep are equal on all of them, so one rank writes them.
  wanted->set_writes_tables(asked.by_order &&
                            (asked.only.has_value() || assignment->rank() == FirstServed(job)));
  wanted->set_park(asked.park);
  wanted->set_released(asked.released);
  if (!asked.ranks_write) return;
  wanted->set_directory(CheckpointFolder(CheckpointRoot(job.config()), asked.step));
  wanted->set_save_id(CheckpointSaveId(job.spec().instance(), asked.number));
}

void CheckpointLifecycle::TrainingEnds(Job* job, absl::Time now) {
  const uint32_t epoch = job->run()->phases().current().epoch();
  if (!job->checkpoints() || job->checkpoints()->epoch_end_noted(epoch)) return;
  NoteProgress(job, now);
  // A program has ended the job before its first step.
  if (ModeOf(job->config().strategy()) == Mode::kSync && job->run()->step_limit() == 0) return;
  absl::StatusOr<JobRun::EndOfEpoch> at_end = job->run()->AtEnd(now);
  if (!at_end.ok()) {
    job->AddWarning(absl::StrCat("no checkpoint can be made of the end of epoch ", epoch + 1, ": ",
                                 at_end.status().message()));
    return;
  }
  AddReplayed(*job, &at_end->state);
  JobCheckpoints::EpochEnd end;
  end.epoch = epoch;
  end.last = job->run()->MayBeLastEpoch();
  end.step = at_end->state.global_step();
  end.state = std::move(at_end->state);
  end.workers = std::move(at_end->workers);
  end.data_is_left = at_end->data_is_left;
  job->checkpoints()->NoteStep(end.step, now);
  job->checkpoints()->EpochEnds(std::move(end), now);
  Apply(job, now);
}

void CheckpointLifecycle::TakeNamed(Job* job, const PhaseReport& report, absl::Time now) {
  if (!job->checkpoints() || report.checkpoint() == 0) return;
  job->checkpoints()->NoteNamed(report.checkpoint(), report.checkpoint_step(), now);
  Apply(job, now);
}

void CheckpointLifecycle::NoteProgress(Job* job, absl::Time now) const {
  uint64_t step = ReportedStep(*job, *parts_.members);
  step = std::max(step, ModeOf(job->config().strategy()) == Mode::kSync
                            ? job->run()->least_step()
                            // No rank may have reported yet in this epoch.
                            : job->run()->step_count().At(0));
  job->checkpoints()->NoteStep(step, now);
  NoteTraining(job);
}

void CheckpointLifecycle::NoteTraining(Job* job) const {
  // A vacant rank makes no part. Its next worker must first rejoin the training phase. Shards that
  // are being taken over make none before they have heard from every rank.
  JobCheckpoints::Training training;
  training.pservers_served = job->pservers.vacant().empty();
  training.all_ranks =
      job->ranks.vacant().empty() && training.pservers_served && job->run()->all_training();
  training.more = job->run()->trains_more();
  training.ranks_keep_tables = WorkersKeepTables(*job);
  const auto ranks =
      static_cast<uint32_t>(training.ranks_keep_tables ? job->ranks.slots().size() : 0);
  for (uint32_t rank = 0; rank < ranks && !training.tables_from; ++rank) {
    // Its next life has the tables as well, but does not know what a checkpoint says of them.
    if (!job->ranks.is_vacant(rank) && job->run()->ended_by_present_life(rank))
      training.tables_from = rank;
  }
  training.steps = job->run()->step_count();
  job->checkpoints()->NoteTraining(training);
}

void CheckpointLifecycle::PhaseChanged(Job* job, absl::Time now) {
  if (!job->checkpoints() || !job->run()) return;
  job->checkpoints()->NoteStep(job->run()->least_step(), now);
  if (job->run()->phases().current().kind() == Phase::TRAIN) job->checkpoints()->EpochBegins(now);
  NoteTraining(job);
  job->checkpoints()->Plan(now);
  Apply(job, now);
}

void CheckpointLifecycle::TakeHosted(const Member& pserver, const HostedCut& cut, Job* job,
                                     absl::Time now) {
  if (!job->checkpoints() || job->over()) return;
  const std::optional<uint32_t> index = job->pservers.IndexOf(pserver.id);
  if (!index) return;
  job->checkpoints()->TakeHosted(*index, cut, now);
  job->NoteProgress();
  Apply(job, now);
}

void CheckpointLifecycle::TakeWorker(const Member& worker, const WorkerCut& cut, Job* job,
                                     absl::Time now) {
  if (!job->checkpoints() || job->over() || cut.job_id() != job->id()) return;
  const RankSlot* const slot = job->ranks.SlotOf(worker.id);
  if (slot == nullptr || slot->incarnation() != cut.incarnation() ||
      cut.rank() != *job->ranks.RankOf(worker.id)) {
    return;
  }
  if (job->run()) job->run()->NoteState(cut.rank(), cut.state());
  job->checkpoints()->TakeWorker(cut, now);
  Apply(job, now);
}

void CheckpointLifecycle::RankLost(Job* job, uint32_t rank, absl::Time now) {
  if (!job->checkpoints() || job->over()) return;
  // Before RankLost, which may plan the next one: a vacant rank cannot make a part of it.
  if (job->run()) NoteTraining(job);
  job->checkpoints()->RankLost(rank, now);
  Apply(job, now);
}

void CheckpointLifecycle::Hold(Job* job, absl::Time now) {
  job->checkpoints()->Hold(now);
  Apply(job, now);
}

uint64_t CheckpointLifecycle::CutAfterLoss(Job* job, uint64_t step,
                                           std::map<uint32_t, WorkerState> lost, absl::Time now) {
  const uint64_t number = job->checkpoints()->CutAfterLoss(step, std::move(lost), now);
  Apply(job, now);
  return number;
}

void CheckpointLifecycle::PserverVacant(Job* job, uint32_t index, absl::Time now) {
  if (!job->checkpoints() || job->over()) return;
  NoteTraining(job);
  // First: its successor lacks the keys, so no cut that needs them may be ordered meanwhile.
  job->deletion.PserverLost(index, now);
  job->checkpoints()->ShardsLost(index, now);
  Apply(job, now);
}

void CheckpointLifecycle::Tick(Job* job, absl::Time now) {
  if (!job->checkpoints() || job->over()) return;
  // The age of the newest one grows meanwhile.
  if (!job->run()) return job->checkpoints()->Plan(now);
  NoteProgress(job, now);
  // A member that hangs must not keep the job from ever making a checkpoint again.
  if (parts_.pauses->Since(job->checkpoints()->progressed_at(), now) >= wait_)
    job->checkpoints()->GiveUpWaiting(wait_, now);
  job->checkpoints()->Plan(now);
  Apply(job, now);
}

void CheckpointLifecycle::Written(Job* job, uint64_t number, const absl::Status& status,
                                  const std::string& warning, absl::Time now) {
  if (!job->checkpoints()) return;
  job->checkpoints()->Committed(number, status, now);
  if (!warning.empty()) job->AddWarning(warning);
  Apply(job, now);
}

void CheckpointLifecycle::End(Job* job, absl::Time now) {
  if (!job->checkpoints()) return;
  job->checkpoints()->End(now);
  Apply(job, now);
}

absl::Status CheckpointLifecycle::CheckMakes(const Job& job, bool another) {
  if (job.over()) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", job.id(), " is over, so it makes no checkpoint"));
  }
  if (!CanCheckpoint(job.config())) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", job.id(), " makes no checkpoints: ",
                     job.config().evaluate_only() ? "it only evaluates" : "checkpoint.keep is 0"));
  }
  if (!job.checkpoints() && job.run()) {
    return absl::UnavailableError(absl::StrCat(
        "job ", job.id(), " was taken over by this scheduler, and not all its members have ",
        "registered yet; ask again in a few seconds"));
  }
  if (!job.checkpoints()) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", job.id(), " is not running yet; ask again when it is training"));
  }
  if (!job.checkpoints()->can_begin() && another) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", job.id(), " has trained its last step, so it makes no checkpoint"));
  }
  return absl::OkStatus();
}

absl::StatusOr<CheckpointJobReply> CheckpointLifecycle::Demand(Job* job, uint64_t number,
                                                               absl::Time now) {
  CheckpointJobReply reply;
  if (number != 0 && job->checkpoints()) {
    number = job->checkpoints()->Followed(number);
    if (const auto* outcome = job->checkpoints()->OutcomeOf(number)) return ReplyOf(*outcome);
    if (number <= job->checkpoints()->over()) {
      return absl::NotFoundError(absl::StrCat("the outcome of checkpoint ", number, " of job ",
                                              job->id(), " is no longer known"));
    }
  }
  SLUICE_RETURN_IF_ERROR(CheckMakes(*job, /*another=*/number == 0));
  reply.set_number(number != 0 ? number : job->checkpoints()->Demand(now));
  Apply(job, now);
  return reply;
}

void CheckpointLifecycle::Apply(Job* job, absl::Time now) {
  JobCheckpoints& checkpoints = *job->checkpoints();
  if (checkpoints.needs_state()) {
    absl::StatusOr<CheckpointState> state = StateOf(*job, now);
    if (state.ok()) AddReplayed(*job, &*state);
    checkpoints.SetState(std::move(state), now);
    parts_.effects->StatusChanged(job);
  }
  // The age of the checkpoint counts from the moment at which the cut began.
  const absl::Time cut_at = checkpoints.begun_at();
  if (std::optional<Manifest> manifest = checkpoints.TakeCommit())
    WriteManifest(*job, *std::move(manifest), cut_at);
  for (const JobCheckpoints::Discard& discard : checkpoints.TakeDiscards(now))
    DiscardFiles(*job, discard, now);
  if (std::string warning = checkpoints.TakeWarning(); !warning.empty())
    job->AddWarning(std::move(warning));
  if (job->ledger.asks_news()) {
    // Both sides of the change: ranks that were asked have to hear that they are not any more.
    const bool by_order = job->ledger.told_by_order() || checkpoints.asked().by_order;
    const bool only_first = ModeOf(job->config().strategy()) == Mode::kSync && !by_order;
    job->ledger.ToldWorkers();
    for (const RankSlot& slot : job->ranks.slots()) {
      if (only_first && &slot != &job->ranks.slots()[0]) break;
      if (Member* member = parts_.members->ById(slot.member_id()))
        parts_.effects->DesiredChanged(member);
    }
  }
  if (job->ledger.over_is_news() && !job->over()) parts_.effects->records()->Changed(*job);
  if (job->ledger.over_is_news() || job->ledger.orders_news()) {
    job->ledger.ToldPservers();
    for (const uint64_t id : job->pservers.members()) {
      if (Member* member = parts_.members->ById(id)) parts_.effects->DesiredChanged(member);
    }
    parts_.effects->StatusChanged(job);
  }
}

absl::StatusOr<CheckpointState> CheckpointLifecycle::StateOf(const Job& job, absl::Time now) const {
  const uint64_t step = job.checkpoints()->open_step();
  if (ModeOf(job.config().strategy()) == Mode::kSync) return job.run()->StateAt(step, now);
  SLUICE_ASSIGN_OR_RETURN(std::vector<RankPart> parts, job.checkpoints()->Parts());
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    // Some shard holds nothing of the present life, which began at what all shards held of earlier
    // lives. Some shards may hold more.
    if (parts[rank].held.incarnation() != job.ranks.slots()[rank].incarnation())
      // So the rank continues from where its life began.
      parts[rank].held.Clear();
  }
  return job.run()->StateOf(step, parts, now);
}

void CheckpointLifecycle::WriteManifest(const Job& job, Manifest manifest, absl::Time cut_at) {
  manifest.set_job_id(job.id());
  *manifest.mutable_tables() = job.spec().tables();
  // What the tables have begun with is not theirs any more.
  for (TableConfig& table : *manifest.mutable_tables()) table.clear_start();
  const uint64_t number = job.checkpoints()->open_number();
  OutputAction action =
      CheckpointActionOf(job, OutputAction::kCheckpoint, job.spec().instance(), number, cut_at);
  action.manifest = std::move(manifest);
  action.damaged = job.ledger.damaged();
  if (!action.resumes) action.instances = job.attempt.instances();
  parts_.effects->Write(std::move(action));
}

void CheckpointLifecycle::DiscardFiles(const Job& job, const JobCheckpoints::Discard& discard,
                                       absl::Time now) {
  OutputAction action =
      CheckpointActionOf(job, OutputAction::kDiscard, discard.instance, discard.number, now);
  action.manifest.set_global_step(discard.step);
  if (discard.is_export) {
    action.manifest.mutable_export_()->set_instance(discard.instance);
    action.manifest.mutable_export_()->set_to(discard.number);
  }
  action.why = discard.why;
  parts_.effects->Write(std::move(action));
}

}  // namespace sluice
