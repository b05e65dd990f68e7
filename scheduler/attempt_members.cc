#include "scheduler/attempt_members.h"

#include <algorithm>
#include <set>
#include <utility>

#include "common/base/status_macros.h"
#include "scheduler/shard_takeover.h"

namespace sluice {

bool UsesDraining(const Job& job, const Membership& members) {
  const auto& draining = members.draining();
  return std::any_of(job.pservers.ranks.begin(), job.pservers.ranks.end(),
                     [&](uint32_t rank) { return draining.count(rank) > 0; });
}

absl::Status AttemptMembers::Begin(Job* job, absl::Time now) {
  const uint64_t generation = job->spec.route().generation();
  std::vector<uint64_t> pservers;
  std::vector<std::string> addresses;
  for (const uint32_t rank : job->pservers.ranks) {
    const Member& pserver = *parts_.members->At(ROLE_PSERVER, rank);
    pservers.push_back(pserver.id);
    addresses.push_back(pserver.self.address());
  }
  Readdress(job);
  SLUICE_RETURN_IF_ERROR(options_.place(addresses, &job->spec));
  Route* const route = job->spec.mutable_route();
  route->set_generation(std::max(route->generation(), generation + 1));
  route->mutable_pserver_ranks()->Assign(job->pservers.ranks.begin(), job->pservers.ranks.end());
  SLUICE_RETURN_IF_ERROR(AssignFollowers(job));
  job->pservers.members = std::move(pservers);
  job->ranks.slots.clear();
  job->ranks.by_member.clear();
  job->spec.clear_incarnations();  // pservers know no earlier life in a new instance
  for (Member* worker : WorkersFor(*job)) {
    job->ranks.by_member[worker->id] = static_cast<uint32_t>(job->ranks.slots.size());
    job->ranks.slots.emplace_back(worker->id, worker->self.rank(), next_incarnation_++);
    worker->job_id = job->job_id;
  }
  GiveBack(job);  // those that are reserved, but got no rank
  job->opening.Begin(now);
  job->hosted = true;
  TellPservers(*job);
  return absl::OkStatus();
}

void AttemptMembers::Readdress(Job* job) const {
  // An address may be that of a new process, with the same rank.
  Route* const route = job->spec.mutable_route();
  for (int i = 0; i < route->pservers_size(); ++i) {
    route->set_pservers(i, "");
    if (i >= static_cast<int>(job->pservers.placed_on.size())) continue;
    const uint32_t rank = job->pservers.placed_on[i];
    if (std::count(job->pservers.ranks.begin(), job->pservers.ranks.end(), rank) > 0)
      route->set_pservers(i, parts_.members->At(ROLE_PSERVER, rank)->self.address());
  }
  job->pservers.placed_on = job->pservers.ranks;
}

void AttemptMembers::AvoidDraining(Job* job) {
  if (job->pservers.kept || !UsesDraining(*job, *parts_.members)) return;
  const auto& draining = parts_.members->draining();
  std::set<uint32_t> ranks;
  for (const uint32_t rank : job->pservers.ranks) {
    if (draining.count(rank) == 0) ranks.insert(rank);
  }
  for (const Member* pserver : parts_.members->UsablePservers()) ranks.insert(pserver->self.rank());
  if (!ranks.empty()) job->pservers.ranks.assign(ranks.begin(), ranks.end());
}

std::vector<Member*> AttemptMembers::WorkersFor(const Job& job) const {
  // A worker that is reserved for the job must get a rank, or nobody would ever give it back.
  std::vector<Member*> own, free, chosen;
  for (Member* worker : parts_.members->Alive(ROLE_WORKER)) {
    if (worker->job_id == job.job_id) own.push_back(worker);
    if (worker->free()) free.push_back(worker);
  }
  for (const auto* from : {&own, &free}) {
    for (Member* worker : *from) {
      if (chosen.size() < job.spec.worker_num()) chosen.push_back(worker);
    }
  }
  // Ranks follow the order of the cluster.
  std::sort(chosen.begin(), chosen.end(),
            [](const Member* a, const Member* b) { return a->self.rank() < b->self.rank(); });
  return chosen;
}

void AttemptMembers::SetNewInstance(Job* job) {
  job->spec.set_instance(next_instance_++);
  job->instances.push_back(job->spec.instance());
}

uint32_t AttemptMembers::Count(const Job& job) const {
  const std::vector<Member*> workers = parts_.members->Alive(ROLE_WORKER);
  return static_cast<uint32_t>(
      std::count_if(workers.begin(), workers.end(),
                    [&](const Member* worker) { return worker->job_id == job.job_id; }));
}

uint32_t AttemptMembers::Reserve(Job* job, uint32_t worker_num) {
  uint32_t has = Count(*job);
  for (Member* worker : parts_.members->Alive(ROLE_WORKER)) {
    if (has >= worker_num) break;
    if (!worker->free()) continue;
    worker->job_id = job->job_id;
    ++has;
  }
  return has;
}

void AttemptMembers::GiveBack(Job* job) {
  for (Member* worker : parts_.members->Alive(ROLE_WORKER)) {
    if (worker->job_id != job->job_id) continue;
    const RankSlot* const slot = job->ranks.SlotOf(worker->id);
    if (slot == nullptr || slot->released()) worker->job_id.clear();
  }
  parts_.queue->MembersChanged();
}

void AttemptMembers::Withdraw(RankSlot* slot) {
  Member* member = parts_.members->ById(slot->member_id());
  if (member == nullptr) return slot->Withdraw(0);
  parts_.effects->DesiredChanged(member);
  slot->Withdraw(member->version);
}

void AttemptMembers::Release(Job* job, RankSlot* slot) {
  slot->Release();
  Member* member = parts_.members->ById(slot->member_id());
  // The member may be gone, or a newer process may have its role and rank.
  if (member == nullptr || member->job_id != job->job_id) return;
  // A survivor stays reserved for the next attempt.
  if (job->awaits_members() && member->alive) return;
  member->job_id.clear();
  parts_.queue->MembersChanged();
}

void AttemptMembers::TellPservers(const Job& job) {
  for (const uint64_t id : job.pservers.members) {
    if (Member* member = parts_.members->ById(id)) parts_.effects->DesiredChanged(member);
  }
}

}  // namespace sluice
