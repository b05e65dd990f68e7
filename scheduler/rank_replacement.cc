#include "scheduler/rank_replacement.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/wire/train_position.h"
#include "scheduler/core_effects.h"

namespace sluice {
namespace {

void Add(const HostedJob& hosted, bool first, std::vector<HeldOfRank>* held) {
  for (size_t r = 0; r < held->size(); ++r) {
    const RankPosition& position = hosted.ranks(static_cast<int>(r));
    HeldOfRank& rank = (*held)[r];
    if (first) {
      rank.least = position;
    } else {
      KeepLeast(position, &rank.least);
    }
    if (first || IsBehind(rank.most, position)) rank.most = position;
    // A commit at one pserver says that every pserver holds the rank's push.
    if (position.committed() >= rank.committed.committed()) rank.committed = position;
  }
}

}  // namespace

std::optional<std::vector<HeldOfRank>> HeldByPservers(const Job& job, const Membership& members) {
  std::vector<HeldOfRank> held(job.spec.worker_num());
  bool first = true;
  for (const uint64_t id : job.pservers.members) {
    const Member* member = members.ById(id);
    if (member == nullptr || !HasOpened(job, *member)) return std::nullopt;
    const HostedJob& hosted = *HostedOf(job, *member);
    // A pserver without shards of this job holds nothing.
    if (hosted.ranks_size() != static_cast<int>(held.size())) continue;
    Add(hosted, first, &held);
    first = false;
  }
  return held;
}

void RankReplacement::Lose(Job* job, uint32_t rank, uint64_t incarnation, const std::string& why,
                           absl::Time now) {
  RankSlot& slot = job->ranks.slots[rank];
  job->ranks.by_member.erase(slot.member_id());
  parts_.effects->StatusChanged(job);
  const auto vacant = job->ranks.vacant.find(rank);
  const bool begun = job->run.has_value();
  const bool assigned = vacant == job->ranks.vacant.end();
  const uint64_t next = assigned ? incarnation : slot.incarnation();
  const uint64_t lost = slot.incarnation();
  slot = RankSlot(0, slot.worker(), next, begun);
  slot.Release();
  if (!assigned) return;
  job->ranks.vacant[rank] = {now, why, lost, /*settled=*/!begun};
  job->recovery.Describe(why, absl::StrCat("rank ", rank, " waits for a worker"));
  // Fences the rank's earlier life.
  if (begun) PublishRouteChange(job, parts_.members, parts_.effects);
}

absl::Status RankReplacement::Advance(Job* job, absl::Time now, std::vector<uint32_t>* settled) {
  if (job->ranks.vacant.empty() || job->over() || job->finishing()) return absl::OkStatus();
  std::optional<std::vector<HeldOfRank>> held;
  const RecoveryConfig& recovery = job->spec.config().recovery();
  const absl::Duration wait = recovery.has_wait_s() ? absl::Seconds(recovery.wait_s()) : wait_;
  std::vector<uint32_t> ranks;
  for (const auto& [rank, vacancy] : job->ranks.vacant) ranks.push_back(rank);
  for (const uint32_t rank : ranks) {
    if (job->ranks.slots[rank].member_id() == 0) TakeFreeWorker(job, rank);
    Vacancy& vacancy = job->ranks.vacant[rank];
    if (!vacancy.settled) {
      if (!held) held = HeldByPservers(*job, *parts_.members);
      if (held) {
        SLUICE_RETURN_IF_ERROR(Settle(job, rank, (*held)[rank]));
        settled->push_back(rank);
      }
    }
    if (vacancy.settled && job->run && job->ranks.slots[rank].member_id() != 0) {
      Assign(job, rank);
    } else if (parts_.pauses->Since(vacancy.since, now) >= wait) {
      return TooLate(*job, rank, wait);
    }
  }
  return absl::OkStatus();
}

void RankReplacement::TakeFreeWorker(Job* job, uint32_t rank) {
  RankSlot& slot = job->ranks.slots[rank];
  Member* taken = nullptr;
  for (Member* worker : parts_.members->Alive(ROLE_WORKER)) {
    if (!worker->free()) continue;
    if (taken == nullptr || worker->self.rank() == slot.worker()) taken = worker;
  }
  if (taken == nullptr) return;
  taken->job_id = job->job_id;
  job->ranks.by_member[taken->id] = rank;
  slot = RankSlot(taken->id, taken->self.rank(), slot.incarnation(), slot.rejoins());
  parts_.queue->MembersChanged();
}

absl::Status RankReplacement::Settle(Job* job, uint32_t rank, const HeldOfRank& held) {
  Vacancy& vacancy = job->ranks.vacant[rank];
  uint64_t replayed = 0;
  SLUICE_RETURN_IF_ERROR(job->run->Rejoin(rank, vacancy.lost_incarnation, held, &replayed));
  job->recovery.CountReplayed(replayed);
  parts_.effects->records()->LifeSettled(*job, rank, vacancy.lost_incarnation, held);
  EndedLife& ended = job->ranks.ended.emplace_back();
  ended.set_rank(rank);
  ended.set_incarnation(vacancy.lost_incarnation);
  // Otherwise some shard holds nothing of the lost life.
  if (held.least.incarnation() == vacancy.lost_incarnation)
    ended.set_sequence(held.least.sequence());
  vacancy.settled = true;
  parts_.effects->records()->Changed(*job);  // the examples that are trained again
  parts_.effects->StatusChanged(job);
  return absl::OkStatus();
}

void RankReplacement::Assign(Job* job, uint32_t rank) {
  RankSlot& slot = job->ranks.slots[rank];
  job->recovery.Describe(job->ranks.vacant[rank].why,
                         absl::StrCat("rank ", rank, " continues as worker ", slot.worker()));
  job->ranks.vacant.erase(rank);
  Member* const member = parts_.members->ById(slot.member_id());
  parts_.effects->DesiredChanged(member);
  slot.Assign(member->version);
  parts_.effects->records()->MembersChanged(*job);
  parts_.effects->StatusChanged(job);
}

absl::Status RankReplacement::TooLate(const Job& job, uint32_t rank, absl::Duration wait) const {
  const std::string what =
      job.ranks.slots[rank].member_id() == 0
          ? "no free worker took its place"
          : "the pservers did not report what they hold of it (see their logs)";
  return absl::DeadlineExceededError(
      absl::StrCat(job.ranks.vacant.at(rank).why, "; ", what, " as rank ", rank, " of job ",
                   job.job_id, " within ", absl::FormatDuration(wait),
                   " (recovery.wait_s, or limits.wait_s of the cluster)"));
}

}  // namespace sluice
