#include "scheduler/recovery/rank_replacement.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/wire/train_position.h"
#include "scheduler/registry/core_effects.h"

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
  std::vector<HeldOfRank> held(job.spec().worker_num());
  bool first = true;
  for (const uint64_t id : job.pservers.members()) {
    const Member* member = members.ById(id);
    // A pserver that has not taken the new generation over could still apply frames of the lost
    // life.
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
  const bool begun = job->run() != nullptr;
  parts_.effects->StatusChanged(job);
  if (!job->ranks.Lose(rank, incarnation, begun, why, now)) return;
  job->recovery.Describe(why, absl::StrCat("rank ", rank, " waits for a worker"));
  // Fences the rank's earlier life.
  if (begun) PublishRouteChange(job, parts_.members, parts_.effects);
}

absl::Status RankReplacement::Advance(Job* job, absl::Time now, std::vector<uint32_t>* settled) {
  if (job->ranks.vacant().empty() || job->over() || job->finishing()) return absl::OkStatus();
  std::optional<std::vector<HeldOfRank>> held;
  const RecoveryConfig& recovery = job->spec().config().recovery();
  const absl::Duration wait = recovery.has_wait_s() ? absl::Seconds(recovery.wait_s()) : wait_;
  std::vector<uint32_t> ranks;
  // A copy: Assign removes entries.
  for (const auto& [rank, vacancy] : job->ranks.vacant()) ranks.push_back(rank);
  for (const uint32_t rank : ranks) {
    if (job->ranks.slots()[rank].member_id() == 0) TakeFreeWorker(job, rank);
    const Vacancy& vacancy = job->ranks.vacant().at(rank);
    if (!vacancy.settled) {
      if (!held) held = HeldByPservers(*job, *parts_.members);
      if (held) {
        SLUICE_RETURN_IF_ERROR(Settle(job, rank, (*held)[rank]));
        settled->push_back(rank);
      }
    }
    if (vacancy.settled && job->run() && job->ranks.slots()[rank].member_id() != 0) {
      Assign(job, rank);
    } else if (parts_.pauses->Since(vacancy.since, now) >= wait) {
      return TooLate(*job, rank, wait);
    }
  }
  return absl::OkStatus();
}

void RankReplacement::TakeFreeWorker(Job* job, uint32_t rank) {
  const absl::Span<const RankSlot> slots = job->ranks.slots();
  // Whether the worker's place has served another rank, which is vacant as well.
  const auto takes_its_own = [&](const Member& worker) {
    return std::any_of(job->ranks.vacant().begin(), job->ranks.vacant().end(), [&](const auto& v) {
      return v.first != rank && slots[v.first].worker() == worker.self.rank();
    });
  };
  Member* taken = nullptr;
  for (Member* worker : parts_.members->Alive(ROLE_WORKER)) {
    if (!worker->free_for(job->config())) continue;
    // The same place is likely to have the data in its page cache, and the data that a program
    // gives may be that of its first rank alone.
    const bool own = worker->self.rank() == slots[rank].worker();
    if (own || (taken == nullptr && !takes_its_own(*worker))) taken = worker;
  }
  if (taken == nullptr) return;
  taken->job_id = job->id();
  job->ranks.Take(rank, taken->id, taken->self.rank());
  parts_.queue->MembersChanged();
}

absl::Status RankReplacement::Settle(Job* job, uint32_t rank, const HeldOfRank& held) {
  const uint64_t lost = job->ranks.vacant().at(rank).lost_incarnation;
  uint64_t replayed = 0;
  SLUICE_RETURN_IF_ERROR(job->run()->Rejoin(rank, lost, held, &replayed));
  job->recovery.CountReplayed(replayed);
  parts_.effects->records()->LifeSettled(*job, rank, lost, held);
  // Otherwise some shard holds nothing of the lost life.
  const bool all_hold = held.least.incarnation() == lost;
  job->ranks.Settle(rank, all_hold ? held.least.sequence() : 0);
  parts_.effects->records()->Changed(*job);  // the examples that are trained again
  parts_.effects->StatusChanged(job);
  return absl::OkStatus();
}

void RankReplacement::Assign(Job* job, uint32_t rank) {
  const RankSlot& slot = job->ranks.slots()[rank];
  job->recovery.Describe(job->ranks.vacant().at(rank).why,
                         absl::StrCat("rank ", rank, " continues as worker ", slot.worker()));
  Member* const member = parts_.members->ById(slot.member_id());
  parts_.effects->DesiredChanged(member);
  job->ranks.Fill(rank, member->version);
  // The run can be adopted again: all its places are taken.
  parts_.effects->records()->MembersChanged(*job);
  parts_.effects->StatusChanged(job);
}

absl::Status RankReplacement::TooLate(const Job& job, uint32_t rank, absl::Duration wait) const {
  const std::string what =
      job.ranks.slots()[rank].member_id() == 0
          ? "no free worker took its place"
          : "the pservers did not report what they hold of it (see their logs)";
  return absl::DeadlineExceededError(
      absl::StrCat(job.ranks.vacant().at(rank).why, "; ", what, " as rank ", rank, " of job ",
                   job.id(), " within ", absl::FormatDuration(wait),
                   " (recovery.wait_s, or limits.wait_s of the cluster)"));
}

}  // namespace sluice
