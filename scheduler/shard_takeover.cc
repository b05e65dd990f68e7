#include "scheduler/shard_takeover.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/config/job_config.h"
#include "scheduler/checkpoint_lifecycle.h"
#include "scheduler/route_change.h"

namespace sluice {

bool CanTakeOverShards(const Job& job) {
  if (job.over() || job.state != JOB_RUNNING || !job.run) return false;
  if (ModeOf(job.config.strategy()) == Mode::kSync) return false;
  return std::all_of(job.vacant.begin(), job.vacant.end(),
                     [](const auto& vacancy) { return vacancy.second.settled; });
}

void ShardTakeover::Lose(Job* job, uint32_t index, const std::string& why, absl::Time now) {
  job->pservers[index] = 0;
  PserverVacancy& vacancy = job->vacant_pservers[index];
  vacancy = PserverVacancy();
  vacancy.since = now;
  vacancy.why = why;
  vacancy.lost_before = job->recovery.counts().updates_lost();
  UpdateRoute(job);
  job->recovery.Describe(
      why, absl::StrCat("pserver ", job->pserver_ranks[index], " waits for another process"));
  parts_.effects->StatusChanged(job);
}

void ShardTakeover::UpdateRoute(Job* job) {
  Route* const route = job->spec.mutable_route();
  route->clear_vacant();
  for (const auto& [index, vacancy] : job->vacant_pservers) {
    if (!vacancy.opened) route->add_vacant(index);
  }
}

void ShardTakeover::TakeHosted(Job* job, uint32_t index, const HostedJob& hosted) {
  if (job->recovery.NoteLost(index, hosted.updates_lost())) parts_.effects->StatusChanged(job);
}

absl::Status ShardTakeover::Advance(Job* job, absl::Time now) {
  if (job->over() || job->vacant_pservers.empty()) return absl::OkStatus();
  const RecoveryConfig& recovery = job->spec.config().recovery();
  const absl::Duration wait = recovery.has_wait_s() ? absl::Seconds(recovery.wait_s()) : wait_;
  std::vector<uint32_t> vacant;
  for (const auto& [index, vacancy] : job->vacant_pservers) vacant.push_back(index);
  for (const uint32_t index : vacant) {
    const bool late = parts_.pauses->Since(job->vacant_pservers[index].since, now) >= wait;
    if (!TakeProcess(job, index, now) || !HasOpenedTables(job, index, now)) {
      if (late) return TooLate(*job, index, wait);
    } else if (EveryRankIsHeard(job, index)) {
      job->vacant_pservers.erase(index);
    }
  }
  return absl::OkStatus();
}

bool ShardTakeover::TakeProcess(Job* job, uint32_t index, absl::Time now) {
  if (job->pservers[index] != 0) return true;
  const Member* const member = parts_.members->At(ROLE_PSERVER, job->pserver_ranks[index]);
  if (member == nullptr || !member->alive) return false;
  if (job->checkpoints && job->checkpoints->committing()) return false;
  job->pservers[index] = member->id;
  job->vacant_pservers[index].since = now;
  Takeover* const takeover = job->spec.mutable_takeover();
  takeover->set_checkpoint(CheckpointLifecycle::NewestOfInstance(*job));
  takeover->mutable_ended()->Assign(job->ended.begin(), job->ended.end());
  job->spec.mutable_route()->set_pservers(static_cast<int>(index), member->self.address());
  PublishRouteChange(job, parts_.members, parts_.effects);
  // A rank that sends nothing would not learn of the change from the other pservers.
  for (const RankSlot& slot : job->ranks) {
    if (Member* worker = parts_.members->ById(slot.member_id()))
      parts_.effects->DesiredChanged(worker);
  }
  parts_.effects->StatusChanged(job);
  return true;
}

bool ShardTakeover::HasOpenedTables(Job* job, uint32_t index, absl::Time now) {
  PserverVacancy& vacancy = job->vacant_pservers[index];
  if (vacancy.opened) return true;
  const Member* const member = parts_.members->ById(job->pservers[index]);
  if (member == nullptr) return false;
  const HostedJob* const hosted = HostedOf(*job, *member);
  if (hosted != nullptr && hosted->loaded_bytes() > vacancy.loaded_bytes) {
    vacancy.loaded_bytes = hosted->loaded_bytes();
    vacancy.since = now;
    parts_.effects->StatusChanged(job);
  }
  if (!HasOpened(*job, *member)) return false;
  vacancy.opened = true;
  UpdateRoute(job);
  parts_.effects->StatusChanged(job);
  return true;
}

bool ShardTakeover::EveryRankIsHeard(Job* job, uint32_t index) {
  const Member* const member = parts_.members->ById(job->pservers[index]);
  if (member == nullptr || !HasOpened(*job, *member)) return false;
  if (HostedOf(*job, *member)->awaited_ranks_size() > 0) return false;
  const PserverVacancy& vacancy = job->vacant_pservers[index];
  const uint64_t lost = job->recovery.counts().updates_lost() - vacancy.lost_before;
  const std::string& checkpoint = job->spec.takeover().checkpoint();
  job->recovery.Describe(
      vacancy.why,
      absl::StrCat("its shards went on ",
                   checkpoint.empty() ? "as the job began" : absl::StrCat("from ", checkpoint),
                   " at pserver ", job->pserver_ranks[index], " (", member->self.address(), "); ",
                   lost, lost == 1 ? " update is lost" : " updates are lost"));
  parts_.effects->StatusChanged(job);
  return true;
}

void ShardTakeover::GiveUp(Job* job) {
  if (job->vacant_pservers.empty()) return;
  AddWarning(job,
             "a member was lost before restored shards had heard from every rank; "
             "recovery.updates_lost may be too small");
  job->vacant_pservers.clear();
}

absl::Status ShardTakeover::TooLate(const Job& job, uint32_t index, absl::Duration wait) const {
  const std::string rank = absl::StrCat("pserver ", job.pserver_ranks[index]);
  return absl::DeadlineExceededError(
      absl::StrCat(job.vacant_pservers.at(index).why, "; gave up after ",
                   absl::FormatDuration(wait), " (recovery.wait_s): waits for ", rank,
                   job.pservers[index] == 0 ? " to register" : " to open the tables"));
}

}  // namespace sluice
