#include "scheduler/recovery/job_adoption.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "common/saved_model/checkpoint.h"
#include "scheduler/recovery/member_loss.h"

namespace sluice {
namespace {

// Members that live come back within this time, however short their lease is.
constexpr absl::Duration kMembersComeBack = absl::Seconds(5);

const HeldJob* HeldOf(const Job& job, const Member& member) {
  for (const HeldJob& held : member.self.holds()) {
    if (held.job_id() == job.id() && held.instance() == job.spec().instance()) return &held;
  }
  return nullptr;
}

// The record names what every rank and pserver of the attempt does, and nothing beyond them.
absl::Status CheckMembers(const RunRecord& record, size_t pservers) {
  const JobSpec& spec = record.spec();
  const auto& followers = spec.follower();
  // The store may have been edited or cut. Everything below indexes ranks and pservers without a
  // further check.
  if (record.ranks_size() != static_cast<int>(spec.worker_num()) ||
      pservers != static_cast<size_t>(spec.route().pservers_size()) ||
      (!followers.empty() && followers.size() != spec.route().pservers_size())) {
    return absl::DataLossError("the record of the run is not complete");
  }
  for (const uint32_t follower : followers) {
    if (follower >= pservers) return absl::DataLossError("a follower is out of range");
  }
  return absl::OkStatus();
}

// Repeats what the record says.
absl::Status Replay(const TaskRecord& task, absl::Time now, JobRun* run) {
  if (task.has_asked()) return run->NextTask(task.asked()).status();
  if (task.has_lost()) {
    const LostLife& lost = task.lost();
    uint64_t replayed = 0;  // already counted
    return run->Rejoin(task.rank(), lost.incarnation(),
                       {lost.least(), lost.most(), lost.committed()}, &replayed);
  }
  if (task.has_early_end()) {
    run->EndEarly(task.early_end());
    return absl::OkStatus();
  }
  if (task.saw_files()) {
    run->SawFiles(task.rank());
    return absl::OkStatus();
  }
  return run->TakeReport(task.rank(), task.ended(), now).status();
}

// Makes the run that the records describe.
absl::StatusOr<std::unique_ptr<JobRun>> Replay(const StoredRun& stored, bool same_clock,
                                               absl::Time now, const JobRun::Options& options) {
  auto run = std::make_unique<JobRun>(options, now);
  if (stored.record.phase() == 0) return absl::DataLossError("there is no record of the run");
  for (const auto& [rank, report] : stored.index) {
    if (rank >= options.worker_num) return absl::DataLossError("a rank is out of range");
    SLUICE_RETURN_IF_ERROR(run->TakeReport(rank, report, now).status());
  }
  if (stored.record.phase() == 1) {
    SLUICE_RETURN_IF_ERROR(run->failure());
    return run;
  }
  SLUICE_RETURN_IF_ERROR(
      run->Restore(stored.record.phase(), stored.record.state(), same_clock, now));
  // The phase does not end here: what follows from its end also has to happen.
  run->Hold(true);
  uint64_t lost_lives = 0;
  for (const TaskRecord& task : stored.tasks) {
    if ((task.has_asked() ? task.asked().rank() : task.rank()) >= options.worker_num)
      return absl::DataLossError("a rank is out of range");
    SLUICE_RETURN_IF_ERROR(Replay(task, now, run.get()));
    lost_lives += task.has_lost();
  }
  // A commit may be cut, and the run's record is written before those of its tasks.
  if (lost_lives < stored.record.lost_lives())
    return absl::DataLossError("there is no record of where a rank continues");
  run->Hold(false);
  SLUICE_RETURN_IF_ERROR(run->failure());
  return run;
}

}  // namespace

// ------------------------------------------------------------------------------------ JobAdoption

JobAdoption::JobAdoption(absl::Duration lease, Parts parts)
    : wait_(std::max(lease, kMembersComeBack)), parts_(parts) {}

absl::Status JobAdoption::Begin(Job* job, const Recovery& counts, const StoredRun& run,
                                std::unique_ptr<const ResumePoint> began_at,
                                absl::StatusOr<std::unique_ptr<const ResumePoint>>* newest,
                                absl::Time now) {
  const RunRecord& record = run.record;
  SLUICE_RETURN_IF_ERROR(CheckMembers(record, job->pservers.ranks().size()));
  JobRun::Options options;
  options.config = &job->config();
  options.worker_num = record.spec().worker_num();
  options.instance = record.spec().instance();
  options.save_id = ModelSaveId(record.spec().instance());
  options.global_batch = record.spec().global_batch();
  options.resume = began_at.get();
  options.ranks_close_steps = RanksCloseSteps(*job, record.spec().route());
  const bool same_clock = record.clock() == parts_.effects->records()->clock().name;
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<JobRun> replayed, Replay(run, same_clock, now, options));
  // Its record may be of an earlier phase, or was cut off.
  if (const auto& end = job->course.early_end()) replayed->EndEarly(*end);
  // From here on nothing fails: the caller has been promised that an error changes nothing.
  parts_.jobs->Activate(job);
  job->course.Run();
  job->attempt.Adopt(record.spec(), std::move(began_at), std::move(replayed));
  // Not given up yet: if a member does not come back, the next attempt begins at `newest`.
  attempts_[job].awaited.emplace(Awaited{now, std::move(*newest), 0});
  job->recovery.Restore(counts, now);
  for (const RunRecord::Rank& rank : record.ranks())
    job->ranks.AddAwaited(rank.worker(), rank.incarnation(), rank.rejoins());
  job->ranks.RestoreEnded({record.ended().begin(), record.ended().end()});
  job->pservers.Await();
  if (record.spec().follower_size() > 0)
    job->pservers.Follow(FollowerPlan(record.spec().follower()));
  if (job->finishing()) job->course.Finish(now);
  parts_.effects->records()->RunAdopted(job->id(), run);
  parts_.effects->records()->Changed(*job);
  TellWhoIsMissing(job);
  parts_.effects->WriteStartedAgain(*job, now);
  return absl::OkStatus();
}

bool JobAdoption::TakeBack(Member* member, absl::Time now, std::vector<Refuted>* refuted) {
  bool serves = false;
  for (Job* job : parts_.jobs->active()) {
    const auto found = attempts_.find(job);
    // A job may have been cancelled since. Its members are told to stop as usual.
    if (found == attempts_.end() || job->over()) continue;
    const Claim claim = member->self.role() == ROLE_WORKER ? TakeBackRank(job, member)
                                                           : TakeBackTables(job, *member);
    // Later, the member may be the successor of one that was lost.
    if (claim == Claim::kRefused && found->second.awaited) {
      refuted->push_back({job, absl::AbortedError(absl::StrCat(DescribeMember(*member),
                                                               " no longer serves the job"))});
    }
    if (claim != Claim::kTaken) continue;
    serves = true;
    if (!found->second.awaited) continue;  // the call was repeated
    uint64_t& newest = found->second.awaited->checkpoint;
    // Numbers that any member has seen are used up. A new checkpoint with such a number would meet
    // parts of the old one.
    newest = std::max<uint64_t>(newest, HeldOf(*job, *member)->checkpoint());
    TellWhoIsMissing(job);
    if (job->course.message().empty()) Finish(job, &found->second, now);
  }
  return serves;
}

JobAdoption::Claim JobAdoption::TakeBackRank(Job* job, Member* worker) const {
  const auto of_worker = [&](const RankSlot& slot) {
    return slot.member_id() == worker->id ||
           (awaits(*job) && slot.member_id() == 0 && slot.worker() == worker->self.rank());
  };
  const absl::Span<const RankSlot> slots = job->ranks.slots();
  const auto slot = std::find_if(slots.begin(), slots.end(), of_worker);
  if (slot == slots.end()) return Claim::kNone;
  const auto rank = static_cast<uint32_t>(slot - slots.begin());
  const HeldJob* const held = HeldOf(*job, *worker);
  if (held == nullptr || held->rank() != rank || held->incarnation() != slot->incarnation())
    return slot->member_id() == 0 ? Claim::kRefused : Claim::kNone;
  if (slot->member_id() == worker->id) return Claim::kTaken;
  job->ranks.TakeBack(rank, worker->id, worker->version);
  worker->job_id = job->id();
  return Claim::kTaken;
}

JobAdoption::Claim JobAdoption::TakeBackTables(Job* job, const Member& pserver) {
  const auto at =
      std::find(job->pservers.ranks().begin(), job->pservers.ranks().end(), pserver.self.rank());
  if (at == job->pservers.ranks().end()) return Claim::kNone;
  const auto i = static_cast<uint32_t>(at - job->pservers.ranks().begin());
  const uint64_t member_id = job->pservers.members()[i];
  // Another process has the place. This one is its successor or its predecessor, and the
  // registration has decided that already.
  if (member_id != 0 && member_id != pserver.id) return Claim::kNone;
  const HeldJob* const held = HeldOf(*job, pserver);
  const Route& route = job->spec().route();
  if (held == nullptr || held->generation() != route.generation() ||
      route.pservers(static_cast<int>(i)) != pserver.self.address()) {
    return member_id == 0 ? Claim::kRefused : Claim::kNone;
  }
  job->pservers.TakeBack(i, pserver.id);
  return Claim::kTaken;
}

void JobAdoption::TellWhoIsMissing(Job* job) {
  std::vector<std::string> missing;
  for (size_t i = 0; i < job->pservers.members().size(); ++i) {
    if (job->pservers.members()[i] == 0)
      missing.push_back(absl::StrCat("pserver ", job->pservers.ranks()[i]));
  }
  for (const RankSlot& slot : job->ranks.slots()) {
    if (slot.member_id() == 0) missing.push_back(absl::StrCat("worker ", slot.worker()));
  }
  job->course.Say(missing.empty()
                      ? ""
                      : absl::StrCat("the scheduler was started again; waits for ",
                                     absl::StrJoin(missing, ", "), " to register again"));
  parts_.effects->StatusChanged(job);
}

void JobAdoption::Finish(Job* job, Adopted* adopted, absl::Time now) {
  // Only now are checkpoints made: a cut needs every member.
  parts_.checkpoints->Adopt(job, adopted->awaited->newest, adopted->awaited->checkpoint, now);
  adopted->awaited.reset();
  job->recovery.Describe("the job continued");
  parts_.effects->records()->Changed(*job);
  // The versions that members saw were those of the earlier scheduler. They get their state anew.
  parts_.attempts->TellPservers(*job);
  for (const RankSlot& slot : job->ranks.slots())
    parts_.effects->DesiredChanged(parts_.members->ById(slot.member_id()));
  parts_.effects->StatusChanged(job);
}

bool JobAdoption::awaits(const Job& job) const {
  const auto found = attempts_.find(&job);
  return found != attempts_.end() && found->second.awaited.has_value();
}

uint32_t JobAdoption::MissingWorkers(const Job& job) const {
  if (!awaits(job)) return 0;
  return static_cast<uint32_t>(
      std::count_if(job.ranks.slots().begin(), job.ranks.slots().end(),
                    [](const RankSlot& slot) { return slot.member_id() == 0; }));
}

bool JobAdoption::late(const Job& job, absl::Time now) const {
  return awaits(job) && parts_.pauses->Since(attempts_.at(&job).awaited->since, now) >= wait_;
}

bool JobAdoption::doubted(const Job& job) const {
  const auto found = attempts_.find(&job);
  return found != attempts_.end() && found->second.doubted && !job.over() &&
         job.state() == JOB_RUNNING;
}

void JobAdoption::PhaseEnded(const Job& job) {
  const auto found = attempts_.find(&job);
  // All that this phase knows was decided here or has been agreed on by all ranks.
  if (found != attempts_.end() && !found->second.awaited) found->second.doubted = false;
}

std::optional<JobAdoption::Newest> JobAdoption::End(Job* job) {
  const auto found = attempts_.find(job);
  if (found == attempts_.end()) return std::nullopt;
  std::optional<Newest> newest;
  if (found->second.awaited) {
    newest.emplace(std::move(found->second.awaited->newest));
    // The members that are still missing are not awaited any more.
    for (RankSlot& slot : job->ranks.slots()) {
      if (slot.member_id() == 0) slot.Release();
    }
  }
  attempts_.erase(found);
  return newest;
}

// ------------------------------------------------------------------------------------ JobRestorer

void JobRestorer::RestoreAll(const StoredJobs& stored) {
  runs_ = stored.runs;
  for (const JobRecord& record : stored.jobs) RestoreJob(record);
  // The jobs of the runs that are left are not known any more. A run and its job have separate
  // records, and a commit may have been cut between them.
  for (const auto& left : runs_) calls_.forget(left.second);
  runs_.clear();
}

void JobRestorer::RestoreJob(JobRecord record) {
  const bool over = record.outcome() != JOB_STATE_UNSPECIFIED;
  Point point = nullptr;
  std::optional<RunHandover> run;
  // The result of a job that is over needs no files but its folder.
  if (!over) {
    run = FindHandover(record);
    point = FindPoint(run.has_value(), &record);
  }
  calls_.log(record.job_id(),
             absl::StrCat("taken over from an earlier scheduler: ",
                          over                ? "it is over, and its result is written"
                          : run.has_value()   ? "it continues when its members register again"
                          : !point.ok()       ? std::string(point.status().message())
                          : *point != nullptr ? absl::StrCat("continues from ", (*point)->dir)
                          : record.begun()    ? "begins again"
                                              : "queued"));
  calls_.restore(record, std::move(point), std::move(run));
}

JobRestorer::Point JobRestorer::FindPoint(bool adopted, JobRecord* record) const {
  std::vector<std::string> warnings;
  const auto find = [&](bool verify) { return calls_.find_point(*record, verify, &warnings); };
  // The members wait meanwhile, so that whole checkpoints are read only for a job that goes back to
  // one and may pass over damaged ones.
  auto point = find(/*verify=*/!adopted);
  if (!point.ok() && adopted && record->allow_older()) point = find(/*verify=*/true);
  for (const std::string& warning : warnings) record->add_warnings(warning);
  return point;
}

std::optional<RunHandover> JobRestorer::FindHandover(const JobRecord& record) {
  // Extracted, so that only runs without a job are left in runs_ at the end.
  auto stored = runs_.extract(record.job_id());
  RunHandover handover;
  if (!stored.empty()) handover.run = std::move(stored.mapped());
  const absl::Status adoptable = CheckAdoptable(record, &handover);
  if (adoptable.ok()) return handover;
  if (record.begun()) {
    calls_.log(record.job_id(), absl::StrCat("the run of the earlier scheduler cannot continue: ",
                                             adoptable.message()));
  }
  calls_.forget(handover.run);
  return std::nullopt;
}

absl::Status JobRestorer::CheckAdoptable(const JobRecord& record, RunHandover* handover) const {
  if (handover->run.record.phase() == 0) {
    return absl::NotFoundError(
        "there is no complete record of it, because it lacked a member, had not begun yet, or "
        "could not be recorded");
  }
  handover->began_at = BeginningOf(handover->run);
  const Restore& restore = handover->run.record.spec().restore();
  const bool resumed = restore.kind() == Restore::RESUME && !restore.directory().empty();
  // A record that was too large for the store is not there.
  if (!resumed || handover->began_at != nullptr) return absl::OkStatus();
  SLUICE_ASSIGN_OR_RETURN(handover->began_at,
                          calls_.read_point(restore.directory(), record.config()));
  return absl::OkStatus();
}

}  // namespace sluice
