// Gives workers and pservers to the attempts of jobs, and takes them back.
//
// Begin allocates the members of an attempt and asks the pservers to open its tables. A worker is
// withdrawn (told to stop) before it is released. While its job waits for the next attempt, a
// released worker stays reserved for it.
//
// Invariants:
// - A worker serves at most one job.
// - No two attempts have the same instance, and no two lives of a rank the same incarnation.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "scheduler/job/job.h"
#include "scheduler/members/membership.h"
#include "scheduler/registry/core_effects.h"
#include "scheduler/registry/job_queue.h"

namespace sluice {

class AttemptMembers {
 public:
  struct Options {
    uint64_t first_id = 1;  // of incarnations and of instances
    // Fills num_shards and route of a job that is about to start. Pure. spec->route() is the route
    // of the attempt before, if there was one; its pservers have their present addresses, or "" if
    // they are not among `pservers`.
    std::function<absl::Status(const std::vector<std::string>& pservers, JobSpec* spec)> place;
  };
  // The parts of the core that it works on. All outlive it.
  struct Parts {
    Membership* members = nullptr;
    JobQueue* queue = nullptr;
    CoreEffects* effects = nullptr;
  };
  AttemptMembers(Options options, Parts parts) : options_(std::move(options)), parts_(parts) {}

  // Takes workers, places shards, and asks the pservers to open the tables. Not OK: they cannot be
  // placed.
  // REQUIRES: the pservers of job->pservers.ranks() are alive, and enough workers are reserved for
  // the job or free.
  absl::Status Begin(Job* job, absl::Time now);
  // Gives the job's next attempt a number that no other instance of a job has.
  void SetNewInstance(Job* job);
  // The incarnation of a rank's next life.
  uint64_t NewIncarnation() { return next_incarnation_++; }

  // Allocates free workers to the job until it has `worker_num`. Returns how many it has.
  uint32_t Reserve(Job* job, uint32_t worker_num);
  // Living workers that are allocated to the job.
  uint32_t Count(const Job& job) const;
  // Takes pservers that are draining out of job->pservers.ranks(), and adds the others that can be
  // used in their place. Does nothing when there are no others, or the job keeps its pservers.
  void AvoidDraining(Job* job);
  // Gives back the workers of the job that serve none of its ranks.
  void GiveBack(Job* job);
  // Tells the rank's worker to stop.
  void Withdraw(RankSlot* slot);
  // Call when the rank's worker has stopped or is gone.
  void Release(Job* job, RankSlot* slot);
  // Tells the job's pservers that its specification, or whether it is hosted, has changed.
  void TellPservers(const Job& job);

 private:
  // The workers of the job's next attempt, in the order of their ranks in the cluster.
  std::vector<Member*> WorkersFor(const Job& job) const;
  // By index in the route of the attempt before: the present addresses of its pservers. Empty for
  // those that the next attempt does not use.
  std::vector<std::string> FormerAddresses(const Job& job) const;

  const Options options_;
  const Parts parts_;
  uint64_t next_incarnation_ = options_.first_id;
  uint64_t next_instance_ = options_.first_id;
};

// True when one of the job's pservers is draining.
bool UsesDraining(const Job& job, const Membership& members);

}  // namespace sluice
