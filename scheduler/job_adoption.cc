#include "scheduler/job_adoption.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/saved_model/checkpoint.h"
#include "scheduler/member_loss.h"

namespace sluice {
namespace {

// Members that live come back within this time, however short their lease is.
constexpr absl::Duration kMembersComeBack = absl::Seconds(5);

const HeldJob* HeldOf(const Job& job, const Member& member) {
  for (const HeldJob& held : member.self.holds()) {
    if (held.job_id() == job.job_id && held.instance() == job.spec.instance()) return &held;
  }
  return nullptr;
}

// The record names what every rank and pserver of the attempt does, and nothing beyond them.
absl::Status CheckMembers(const RunRecord& record, size_t pservers) {
  const JobSpec& spec = record.spec();
  const auto& followers = spec.follower();
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
  if (task.saw_files()) {
    run->SawFiles(task.rank());
    return absl::OkStatus();
  }
  return run->TakeReport(task.rank(), task.ended(), now).status();
}

// Makes the run that the records describe.
absl::Status Replay(const StoredRun& stored, bool same_clock, absl::Time now,
                    const JobRun::Options& options, std::optional<JobRun>* run) {
  run->emplace(options, now);
  if (stored.record.phase() == 0) return absl::DataLossError("there is no record of the run");
  for (const auto& [rank, report] : stored.index) {
    if (rank >= options.worker_num) return absl::DataLossError("a rank is out of range");
    SLUICE_RETURN_IF_ERROR((*run)->TakeReport(rank, report, now).status());
  }
  if (stored.record.phase() == 1) return (*run)->failure();
  SLUICE_RETURN_IF_ERROR(
      (*run)->Restore(stored.record.phase(), stored.record.state(), same_clock, now));
  // The phase does not end here: what follows from its end also has to happen.
  (*run)->Hold(true);
  uint64_t lost_lives = 0;
  for (const TaskRecord& task : stored.tasks) {
    if ((task.has_asked() ? task.asked().rank() : task.rank()) >= options.worker_num)
      return absl::DataLossError("a rank is out of range");
    SLUICE_RETURN_IF_ERROR(Replay(task, now, &**run));
    lost_lives += task.has_lost();
  }
  // A commit may be cut, and the run's record is written before those of its tasks.
  if (lost_lives < stored.record.lost_lives())
    return absl::DataLossError("there is no record of where a rank continues");
  (*run)->Hold(false);
  return (*run)->failure();
}

}  // namespace

JobAdoption::JobAdoption(absl::Duration lease, Parts parts)
    : wait_(std::max(lease, kMembersComeBack)), parts_(parts) {}

absl::Status JobAdoption::Begin(Job* job, const Recovery& counts, const StoredRun& run,
                                std::unique_ptr<const ResumePoint> began_at,
                                absl::StatusOr<std::unique_ptr<const ResumePoint>>* newest,
                                absl::Time now) {
  const RunRecord& record = run.record;
  SLUICE_RETURN_IF_ERROR(CheckMembers(record, job->pservers.ranks.size()));
  JobRun::Options options;
  options.config = &job->config;
  options.worker_num = record.spec().worker_num();
  options.save_id = ModelSaveId(record.spec().instance());
  options.global_batch = record.spec().global_batch();
  options.resume = began_at.get();
  options.ranks_close_steps = RanksCloseSteps(*job, record.spec().route());
  const absl::Status replayed =
      Replay(run, record.clock() == parts_.effects->records()->clock(), now, options, &job->run);
  if (!replayed.ok()) {
    job->run.reset();
    return replayed;
  }
  parts_.jobs->Activate(job);
  job->state = JOB_RUNNING;
  job->spec = record.spec();
  job->resume = std::move(began_at);
  attempts_[job].awaited.emplace(Awaited{now, std::move(*newest), 0});
  job->recovery.Restore(counts, now);
  for (const RunRecord::Rank& rank : record.ranks())
    job->ranks.slots.emplace_back(0, rank.worker(), rank.incarnation(), rank.rejoins());
  job->ranks.ended.assign(record.ended().begin(), record.ended().end());
  job->pservers.members.assign(job->pservers.ranks.size(), 0);
  job->pservers.placed_on = job->pservers.ranks;
  job->hosted = true;
  job->steps.emplace(job->spec.worker_num());
  if (job->finishing()) job->finishing_since = now;
  parts_.effects->records()->RunAdopted(job->job_id, run);
  parts_.effects->records()->Changed(*job);
  TellWhoIsMissing(job);
  parts_.effects->WriteStartedAgain(*job, now);
  return absl::OkStatus();
}

bool JobAdoption::TakeBack(Member* member, absl::Time now, std::vector<Refuted>* refuted) {
  bool serves = false;
  for (Job* job : parts_.jobs->active()) {
    const auto found = attempts_.find(job);
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
    newest = std::max<uint64_t>(newest, HeldOf(*job, *member)->checkpoint());
    TellWhoIsMissing(job);
    if (job->message.empty()) Finish(job, &found->second, now);
  }
  return serves;
}

JobAdoption::Claim JobAdoption::TakeBackRank(Job* job, Member* worker) const {
  const auto of_worker = [&](const RankSlot& slot) {
    return slot.member_id() == worker->id ||
           (awaits(*job) && slot.member_id() == 0 && slot.worker() == worker->self.rank());
  };
  const auto slot = std::find_if(job->ranks.slots.begin(), job->ranks.slots.end(), of_worker);
  if (slot == job->ranks.slots.end()) return Claim::kNone;
  const auto rank = static_cast<uint32_t>(slot - job->ranks.slots.begin());
  const HeldJob* const held = HeldOf(*job, *worker);
  if (held == nullptr || held->rank() != rank || held->incarnation() != slot->incarnation())
    return slot->member_id() == 0 ? Claim::kRefused : Claim::kNone;
  if (slot->member_id() == worker->id) return Claim::kTaken;
  *slot = RankSlot(worker->id, slot->worker(), slot->incarnation(), slot->rejoins());
  slot->Assign(worker->version);
  job->ranks.by_member[worker->id] = rank;
  worker->job_id = job->job_id;
  return Claim::kTaken;
}

JobAdoption::Claim JobAdoption::TakeBackTables(Job* job, const Member& pserver) {
  const auto at =
      std::find(job->pservers.ranks.begin(), job->pservers.ranks.end(), pserver.self.rank());
  if (at == job->pservers.ranks.end()) return Claim::kNone;
  const auto i = static_cast<size_t>(at - job->pservers.ranks.begin());
  uint64_t& member_id = job->pservers.members[i];
  if (member_id != 0 && member_id != pserver.id) return Claim::kNone;
  const HeldJob* const held = HeldOf(*job, pserver);
  const Route& route = job->spec.route();
  if (held == nullptr || held->generation() != route.generation() ||
      route.pservers(static_cast<int>(i)) != pserver.self.address()) {
    return member_id == 0 ? Claim::kRefused : Claim::kNone;
  }
  member_id = pserver.id;
  return Claim::kTaken;
}

void JobAdoption::TellWhoIsMissing(Job* job) {
  std::vector<std::string> missing;
  for (size_t i = 0; i < job->pservers.members.size(); ++i) {
    if (job->pservers.members[i] == 0)
      missing.push_back(absl::StrCat("pserver ", job->pservers.ranks[i]));
  }
  for (const RankSlot& slot : job->ranks.slots) {
    if (slot.member_id() == 0) missing.push_back(absl::StrCat("worker ", slot.worker()));
  }
  job->message = missing.empty() ? ""
                                 : absl::StrCat("the scheduler was started again; waits for ",
                                                absl::StrJoin(missing, ", "), " to register again");
  parts_.effects->StatusChanged(job);
}

void JobAdoption::Finish(Job* job, Adopted* adopted, absl::Time now) {
  parts_.checkpoints->Adopt(job, adopted->awaited->newest, adopted->awaited->checkpoint, now);
  adopted->awaited.reset();
  job->recovery.Describe("the job continued");
  parts_.effects->records()->Changed(*job);
  parts_.attempts->TellPservers(*job);
  for (const RankSlot& slot : job->ranks.slots)
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
      std::count_if(job.ranks.slots.begin(), job.ranks.slots.end(),
                    [](const RankSlot& slot) { return slot.member_id() == 0; }));
}

bool JobAdoption::late(const Job& job, absl::Time now) const {
  return awaits(job) && parts_.pauses->Since(attempts_.at(&job).awaited->since, now) >= wait_;
}

bool JobAdoption::doubted(const Job& job) const {
  const auto found = attempts_.find(&job);
  return found != attempts_.end() && found->second.doubted && !job.over() &&
         job.state == JOB_RUNNING;
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
    for (RankSlot& slot : job->ranks.slots) {
      if (slot.member_id() == 0) slot.Release();
    }
  }
  attempts_.erase(found);
  return newest;
}

}  // namespace sluice
