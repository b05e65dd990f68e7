#include "scheduler/recovery/shard_takeover.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/config/mode.h"
#include "scheduler/recovery/checkpoint_lifecycle.h"
#include "scheduler/registry/core_effects.h"

namespace sluice {
namespace {

constexpr absl::Duration kCopiesMayBeMissing = absl::Seconds(60);

}  // namespace

bool CanTakeOverShards(const Job& job) {
  if (job.over() || job.state() != JOB_RUNNING || !job.run()) return false;
  // In sync all shards are at one step. Shards that went back alone would be of another one.
  if (ModeOf(job.config().strategy()) == Mode::kSync) return false;
  // Restored shards ask every rank what was acknowledged to it. A rank whose place nobody knows
  // could not say.
  return std::all_of(job.ranks.vacant().begin(), job.ranks.vacant().end(),
                     [](const auto& vacancy) { return vacancy.second.settled; });
}

absl::Status AssignFollowers(Job* job) {
  job->attempt.SetFollowers({});
  job->pservers.DropFollowers();
  if (job->config().recovery().replicas() == 0) return absl::OkStatus();
  const auto pservers = static_cast<uint32_t>(job->spec().route().pservers_size());
  if (pservers < 2 && !job->course.begun()) {
    return absl::FailedPreconditionError(
        "recovery.replicas: 1 needs another pserver that keeps the copies, but the cluster has 1 "
        "pserver; start at least 2 (--server_num), or set recovery.replicas: 0");
  }
  if (pservers < 2) {
    job->AddWarning("the job continues without replicas, since it has only 1 pserver left");
    return absl::OkStatus();
  }
  FollowerPlan plan(pservers);
  job->attempt.SetFollowers(plan.followers());
  job->pservers.Follow(std::move(plan));
  return absl::OkStatus();
}

void ShardTakeover::Publish(Job* job) {
  if (const FollowerPlan* const plan = job->pservers.followers())
    job->attempt.SetFollowers(plan->followers());
  PublishRouteChange(job, parts_.members, parts_.effects);
  // A rank that sends nothing would not learn of the change from the pservers.
  for (const RankSlot& slot : job->ranks.slots()) {
    if (Member* worker = parts_.members->ById(slot.member_id()))
      parts_.effects->DesiredChanged(worker);
  }
}

void ShardTakeover::UpdateFollowers(Job* job, uint32_t index, const HostedJob& hosted) {
  FollowerPlan* const plan = job->pservers.followers();
  if (plan == nullptr || !job->run()) return;
  const uint64_t generation = job->spec().route().generation();
  bool changed = plan->Note(index, generation, hosted);
  for (const auto& entry : job->pservers.vacant()) {
    const uint32_t vacant = entry.first;
    PserverVacancy& vacancy = job->pservers.vacancy(vacant);
    // The copies that a successor was to read are gone, or it has read them all.
    if (job->pservers.members()[vacant] != 0 && vacancy.copies && !vacancy.opened &&
        plan->SourceOf(vacant, generation) == FollowerPlan::Source::kCheckpoint) {
      // Its follower is gone, or could not keep them. Otherwise the successor has had them dropped.
      if (plan->followers()[vacant] == vacant) vacancy.had_copies = false;
      changed |= plan->GiveUpCopies(vacant, generation);
      vacancy.copies = false;
    }
  }
  changed |= plan->Advance(generation);
  if (!changed) return;
  Publish(job);
  parts_.effects->records()->MembersChanged(*job);
}

void ShardTakeover::Lose(Job* job, uint32_t index, const std::string& why, absl::Time now) {
  PserverVacancy vacancy;
  vacancy.since = now;
  vacancy.why = why;
  // So that the message about this loss counts only its own updates.
  vacancy.lost_before = job->recovery.counts().updates_lost();
  job->pservers.Lose(index, std::move(vacancy));
  UpdateRoute(job);
  // Those that it followed wait for their copies to be void.
  if (FollowerPlan* const plan = job->pservers.followers();
      plan != nullptr && plan->Lose(index, job->spec().route().generation())) {
    Publish(job);
  }
  job->recovery.Describe(
      why, absl::StrCat("pserver ", job->pservers.ranks()[index], " waits for another process"));
  parts_.effects->StatusChanged(job);
}

void ShardTakeover::UpdateRoute(Job* job) {
  std::vector<uint32_t> unopened;
  for (const auto& [index, vacancy] : job->pservers.vacant()) {
    if (!vacancy.opened) unopened.push_back(index);
  }
  job->attempt.SetVacant(unopened);
}

void ShardTakeover::TakeHosted(Job* job, uint32_t index, const HostedJob& hosted,
                               bool may_publish) {
  if (job->recovery.NoteLost(index, hosted.updates_lost())) parts_.effects->StatusChanged(job);
  if (may_publish) UpdateFollowers(job, index, hosted);
}

absl::Status ShardTakeover::Advance(Job* job, absl::Time now) {
  if (job->over()) return absl::OkStatus();
  WarnOfMissingCopies(job, now);
  if (job->pservers.vacant().empty()) return absl::OkStatus();
  const RecoveryConfig& recovery = job->spec().config().recovery();
  const absl::Duration wait = recovery.has_wait_s() ? absl::Seconds(recovery.wait_s()) : wait_;
  std::vector<uint32_t> vacant;
  for (const auto& [index, vacancy] : job->pservers.vacant()) vacant.push_back(index);
  for (const uint32_t index : vacant) {
    // Before the steps below, which begin the time anew when they succeed.
    const bool late = parts_.pauses->Since(job->pservers.vacancy(index).since, now) >= wait;
    if (!TakeProcess(job, index, now) || !HasOpenedTables(job, index, now)) {
      if (late) return TooLate(*job, index, wait);
      continue;
    }
    if (EveryRankIsHeard(job, index)) {
      Settle(job, index);
      RecordSettled(*job);
    } else if (parts_.pauses->Since(job->pservers.vacancy(index).since, now) >= wait) {
      job->AddWarning(absl::StrCat("the restored shards of pserver ", job->pservers.ranks()[index],
                                   " had not heard from every rank within ",
                                   absl::FormatDuration(wait),
                                   " (recovery.wait_s); recovery.updates_lost may be too small"));
      Settle(job, index);
      RecordSettled(*job);
      parts_.effects->StatusChanged(job);
    }
  }
  return absl::OkStatus();
}

void ShardTakeover::Settle(Job* job, uint32_t index) {
  job->pservers.Fill(index);
  if (FollowerPlan* const plan = job->pservers.followers()) plan->Return(index);
}

void ShardTakeover::RecordSettled(const Job& job) {
  parts_.effects->records()->Changed(job);  // the lost updates, and what became of the loss
  parts_.effects->records()->MembersChanged(job);
}

bool ShardTakeover::TakeProcess(Job* job, uint32_t index, absl::Time now) {
  if (job->pservers.members()[index] != 0) return true;
  const Member* const member = parts_.members->At(ROLE_PSERVER, job->pservers.ranks()[index]);
  if (member == nullptr || !member->alive) return false;
  FollowerPlan* const plan = job->pservers.followers();
  FollowerPlan::Source source = FollowerPlan::Source::kCheckpoint;
  const uint64_t generation = job->spec().route().generation();
  if (plan != nullptr) source = plan->SourceOf(index, generation);
  // A follower that has not reported in this generation may hold newer copies than the checkpoint.
  // Taking the checkpoint now would throw them away.
  if (source == FollowerPlan::Source::kNotKnown) return false;
  const bool copies = source == FollowerPlan::Source::kCopies;
  // The manifest that is being written may become the newest one, or may fail. Until then nobody
  // can name the folder to read.
  if (job->checkpoints() && job->checkpoints()->committing()) return false;
  // Void from now on, or a later successor could mix them with what this one has trained.
  if (plan != nullptr && !copies) plan->GiveUpCopies(index, generation);
  if (!copies) WarnOfBestModel(job, index);
  job->pservers.Replace(index, member->id);
  PserverVacancy& vacancy = job->pservers.vacancy(index);
  vacancy.since = now;
  vacancy.copies = vacancy.had_copies = copies;
  Takeover takeover;
  if (copies) {
    const uint32_t follower = plan->followers()[index];
    takeover.set_copies_at(job->spec().route().pservers(static_cast<int>(follower)));
  }
  takeover.set_checkpoint(CheckpointLifecycle::NewestOfInstance(*job));
  const std::vector<EndedLife>& ended = job->ranks.ended();
  takeover.mutable_ended()->Assign(ended.begin(), ended.end());
  job->attempt.TakeOver(index, member->self.address(), std::move(takeover));
  Publish(job);
  parts_.effects->StatusChanged(job);
  return true;
}

void ShardTakeover::WarnOfBestModel(Job* job, uint32_t index) {
  if (!job->run() || job->config().checkpoint().save() != CheckpointConfig::BEST) return;
  const Phase& phase = job->run()->phases().current();
  if (phase.kind() != Phase::EVAL && phase.kind() != Phase::SAVE) return;
  job->AddWarning(absl::StrCat(
      "pserver ", job->pservers.ranks()[index], " was lost while epoch ", phase.epoch() + 1,
      " was evaluated and saved: its evaluation may be of newer values than "
      "its model; recovery.replicas: 1 loses none"));
}

bool ShardTakeover::HasOpenedTables(Job* job, uint32_t index, absl::Time now) {
  PserverVacancy& vacancy = job->pservers.vacancy(index);
  if (vacancy.opened) return true;
  const Member* const member = parts_.members->ById(job->pservers.members()[index]);
  if (member == nullptr) return false;
  const HostedJob* const hosted = HostedOf(*job, *member);
  // Reading a large checkpoint may take longer than the wait. Only a successor that stands still is
  // late.
  if (hosted != nullptr && hosted->loaded_bytes() > vacancy.loaded_bytes) {
    vacancy.loaded_bytes = hosted->loaded_bytes();
    vacancy.since = now;
    parts_.effects->StatusChanged(job);
  }
  if (!HasOpened(*job, *member)) return false;
  vacancy.opened = true;
  vacancy.since = now;
  UpdateRoute(job);
  parts_.effects->StatusChanged(job);
  return true;
}

bool ShardTakeover::EveryRankIsHeard(Job* job, uint32_t index) {
  const Member* const member = parts_.members->ById(job->pservers.members()[index]);
  if (member == nullptr || !HasOpened(*job, *member)) return false;
  if (HostedOf(*job, *member)->awaited_ranks_size() > 0) return false;
  const PserverVacancy& vacancy = job->pservers.vacancy(index);
  const uint64_t lost = job->recovery.counts().updates_lost() - vacancy.lost_before;
  const std::string& checkpoint = job->spec().takeover().checkpoint();
  job->recovery.Describe(
      vacancy.why,
      absl::StrCat("its shards continued ",
                   vacancy.had_copies   ? "from their copies"
                   : checkpoint.empty() ? "as the job began"
                                        : absl::StrCat("from ", checkpoint),
                   " at pserver ", job->pservers.ranks()[index], " (", member->self.address(),
                   "); ", lost, lost == 1 ? " update is lost" : " updates are lost"));
  parts_.effects->StatusChanged(job);
  return true;
}

void ShardTakeover::GiveUp(Job* job) {
  if (job->pservers.vacant().empty()) return;
  job->AddWarning(
      "a member was lost before restored shards had heard from every rank; "
      "recovery.updates_lost may be too small");
  // The job is about to end. It does not wait for figures that only a report would show.
  while (!job->pservers.vacant().empty()) Settle(job, job->pservers.vacant().begin()->first);
}

void ShardTakeover::WarnOfMissingCopies(Job* job, absl::Time now) {
  const FollowerPlan* const plan = job->pservers.followers();
  const bool complete = plan == nullptr || !job->run() || plan->AllComplete();
  const absl::Time missing_since = job->pservers.NoteCopies(complete, now);
  if (complete || parts_.pauses->Since(missing_since, now) < kCopiesMayBeMissing) return;
  // The same text each time, so that the job has the warning once.
  const bool news = job->AddWarning(
      absl::StrCat("copies of shards (recovery.replicas) were incomplete for ",
                   absl::FormatDuration(kCopiesMayBeMissing),
                   "; meanwhile the loss of a pserver loses updates; sluice status and the "
                   "logs of the pservers name the cause"));
  if (news) parts_.effects->StatusChanged(job);
}

absl::Status ShardTakeover::TooLate(const Job& job, uint32_t index, absl::Duration wait) const {
  const std::string rank = absl::StrCat("pserver ", job.pservers.ranks()[index]);
  return absl::DeadlineExceededError(
      absl::StrCat(job.pservers.vacant().at(index).why, "; gave up after ",
                   absl::FormatDuration(wait), " (recovery.wait_s): waits for ", rank,
                   job.pservers.members()[index] == 0 ? " to register" : " to open the tables"));
}

}  // namespace sluice
