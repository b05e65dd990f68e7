#include "scheduler/recovery/attempt_members.h"

#include <algorithm>
#include <set>
#include <utility>

#include "common/base/status_macros.h"
#include "scheduler/recovery/shard_takeover.h"

namespace sluice {

bool UsesDraining(const Job& job, const Membership& members) {
  const auto& draining = members.draining();
  return std::any_of(job.pservers.ranks().begin(), job.pservers.ranks().end(),
                     [&](uint32_t rank) { return draining.count(rank) > 0; });
}

absl::Status AttemptMembers::Begin(Job* job, absl::Time now) {
  std::vector<uint64_t> pservers;
  std::vector<std::string> addresses;
  for (const uint32_t rank : job->pservers.ranks()) {
    const Member& pserver = *parts_.members->At(ROLE_PSERVER, rank);
    // Ids and not ranks: a process that takes the rank later is another member and has no tables.
    pservers.push_back(pserver.id);
    addresses.push_back(pserver.self.address());
  }
  SLUICE_RETURN_IF_ERROR(job->attempt.PlaceTables(options_.place, FormerAddresses(*job), addresses,
                                                  job->pservers.ranks()));
  // Also when what follows fails: the route is that of these pservers from now on.
  job->pservers.Placed();
  SLUICE_RETURN_IF_ERROR(AssignFollowers(job));
  job->pservers.Serve(std::move(pservers));
  job->ranks.Clear();
  for (Member* worker : WorkersFor(*job)) {
    job->ranks.Add(worker->id, worker->self.rank(), next_incarnation_++);
    worker->job_id = job->id();
  }
  GiveBack(job);  // those that are reserved, but got no rank
  job->attempt.Open(now);
  TellPservers(*job);
  return absl::OkStatus();
}

std::vector<std::string> AttemptMembers::FormerAddresses(const Job& job) const {
  std::vector<std::string> addresses;
  const std::vector<uint32_t>& ranks = job.pservers.ranks();
  for (const uint32_t rank : job.pservers.placed_on()) {
    const bool used = std::count(ranks.begin(), ranks.end(), rank) > 0;
    addresses.push_back(used ? parts_.members->At(ROLE_PSERVER, rank)->self.address() : "");
  }
  return addresses;
}

void AttemptMembers::AvoidDraining(Job* job) {
  if (job->pservers.kept() || !UsesDraining(*job, *parts_.members)) return;
  const auto& draining = parts_.members->draining();
  std::set<uint32_t> ranks;
  for (const uint32_t rank : job->pservers.ranks()) {
    if (draining.count(rank) == 0) ranks.insert(rank);
  }
  for (const Member* pserver : parts_.members->UsablePservers()) ranks.insert(pserver->self.rank());
  if (!ranks.empty()) job->pservers.Choose({ranks.begin(), ranks.end()});
}

std::vector<Member*> AttemptMembers::WorkersFor(const Job& job) const {
  // A worker that is reserved for the job must get a rank, or nobody would ever give it back.
  std::vector<Member*> own, free, chosen;
  for (Member* worker : parts_.members->Alive(ROLE_WORKER)) {
    if (worker->job_id == job.id()) own.push_back(worker);
    if (worker->free_for(job.config())) free.push_back(worker);
  }
  for (const auto* from : {&own, &free}) {
    for (Member* worker : *from) {
      if (chosen.size() < job.spec().worker_num()) chosen.push_back(worker);
    }
  }
  // Ranks follow the order of the cluster.
  std::sort(chosen.begin(), chosen.end(),
            [](const Member* a, const Member* b) { return a->self.rank() < b->self.rank(); });
  return chosen;
}

void AttemptMembers::SetNewInstance(Job* job) { job->attempt.SetInstance(next_instance_++); }

uint32_t AttemptMembers::Count(const Job& job) const {
  const std::vector<Member*> workers = parts_.members->Alive(ROLE_WORKER);
  return static_cast<uint32_t>(
      std::count_if(workers.begin(), workers.end(),
                    [&](const Member* worker) { return worker->job_id == job.id(); }));
}

uint32_t AttemptMembers::Reserve(Job* job, uint32_t worker_num) {
  uint32_t has = Count(*job);
  for (Member* worker : parts_.members->Alive(ROLE_WORKER)) {
    if (has >= worker_num) break;
    if (!worker->free_for(job->config())) continue;
    worker->job_id = job->id();
    ++has;
  }
  return has;
}

void AttemptMembers::GiveBack(Job* job) {
  for (Member* worker : parts_.members->Alive(ROLE_WORKER)) {
    if (worker->job_id != job->id()) continue;
    const RankSlot* const slot = job->ranks.SlotOf(worker->id);
    // A worker that has a slot may still be computing. It is given back when it has stopped
    // (Release).
    if (slot == nullptr || slot->released()) worker->job_id.clear();
  }
  parts_.queue->MembersChanged();
}

void AttemptMembers::Withdraw(RankSlot* slot) {
  Member* member = parts_.members->ById(slot->member_id());
  if (member == nullptr) return slot->Withdraw(0);
  parts_.effects->DesiredChanged(member);
  // Only a report that has seen this version confirms the stop: an earlier one may have been under
  // way.
  slot->Withdraw(member->version);
}

void AttemptMembers::Release(Job* job, RankSlot* slot) {
  slot->Release();
  Member* member = parts_.members->ById(slot->member_id());
  // The member may be gone, or a newer process may have its role and rank.
  if (member == nullptr || member->job_id != job->id()) return;
  // A survivor stays reserved for the next attempt.
  if (job->awaits_members() && member->alive) return;
  member->job_id.clear();
  parts_.queue->MembersChanged();
}

void AttemptMembers::TellPservers(const Job& job) {
  // Those that are lost have id 0, which is no member.
  for (const uint64_t id : job.pservers.members()) {
    if (Member* member = parts_.members->ById(id)) parts_.effects->DesiredChanged(member);
  }
}

}  // namespace sluice
