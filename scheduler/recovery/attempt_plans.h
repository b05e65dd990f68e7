// Decides when a running job goes to a next attempt that a user asked for: with another number of
// workers (ScaleJob), or without pservers that are draining (DrainPserver).
//
//   1. Scale, Drain  the job is asked for a checkpoint. Workers that it will get are reserved.
//   2. Due           the checkpoint is complete: the next attempt begins from it.
//   3. Began         the next attempt runs.
//
// Until 2 nothing changes for the job. When the checkpoint fails or can no longer be made, or a
// member of the job is lost meanwhile, the plan is dropped with a warning, and the job continues.
// Between 2 and 3 the job can still return to its former members (GoBack). A job that could not
// leave a draining pserver is asked again only when an operator calls DrainPserver after having
// been told why.
//
// Memory: up to three entries for each job that is planned for, or that could not leave a pserver.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "scheduler/job/job.h"
#include "scheduler/members/membership.h"
#include "scheduler/recovery/attempt_members.h"
#include "scheduler/recovery/checkpoint_lifecycle.h"
#include "scheduler/registry/core_effects.h"
#include "scheduler/registry/job_directory.h"

namespace sluice {

class AttemptPlans {
 public:
  // The parts of the core that it works on. All outlive it.
  struct Parts {
    Membership* members = nullptr;
    const JobDirectory* jobs = nullptr;
    CoreEffects* effects = nullptr;
    CheckpointLifecycle* checkpoints = nullptr;
    AttemptMembers* attempts = nullptr;
  };
  explicit AttemptPlans(Parts parts) : parts_(parts) {}

  // Plans an attempt with this many workers. A newer request replaces an earlier one that is still
  // waiting for its checkpoint; with the present number it only withdraws that one. Workers that
  // are about to leave an ended job count as free. INVALID_ARGUMENT, FAILED_PRECONDITION: the job
  // cannot do that, now or at all; the message says why. ALREADY_EXISTS: it has this number, and
  // nothing is to be done.
  absl::Status Scale(Job* job, uint32_t worker_num, absl::Time now);
  // Plans an attempt without the pservers that are draining, if the job uses any and others can be
  // used, unless an earlier plan has failed (DrainAgain). A job that cannot do that now, such as
  // one that is starting, is left alone.
  void Drain(Job* job, absl::Time now);
  // Call when an operator repeats the request. Clears the last failure unless no operator has seen
  // it.
  void DrainAgain(Job* job);
  // Returns why the job stays on a draining pserver; null if it does not stay or is about to leave.
  const std::string* WhyStays(const Job* job) const;
  // Call when an operator has been told this reason.
  void ToldWhyStays(const Job* job);
  // Call when none of the job's pservers drains any more. Drops the plan unless it scales the job.
  void CancelDrain(Job* job);

  struct Due {
    uint32_t worker_num = 0;
    std::string what;  // e.g. "scaled from 2 to 3 workers"; see JobRecovery::Plan
  };
  // Returns the plan of the job's next attempt when that must begin now.
  std::optional<Due> Take(Job* job, absl::Time now);

  // Call when the planned attempt runs; the job can no longer return to its former members.
  void Began(Job* job);
  // Call when the planned attempt cannot begin. Restores the former members and returns the warning
  // added; nullopt if none was planned.
  std::optional<std::string> GoBack(Job* job, const std::string& why);
  // True when all former members are available.
  bool CanGoBack(const Job& job) const;
  // True when the pserver served the job before the plan.
  bool MayGoBackTo(const Job& job, uint32_t pserver) const;

  // Call when a member of the job was lost, or the attempt is over for another reason. Drops the
  // plan with a warning that leaves out `detail`, which differs from one try to the next.
  void Drop(Job* job, const std::string& why, const std::string& detail = "");
  // The job is over.
  void Forget(const Job* job);

 private:
  // True for a worker that still has to confirm that it has left a job that is over.
  bool IsLeaving(const Member& worker) const;
  struct Plan {
    uint32_t worker_num = 0;  // 0: as now
    uint64_t checkpoint = 0;  // from which the next attempt begins
  };
  // The members of a job before the attempt that begins.
  struct Former {
    uint32_t worker_num = 0;
    std::vector<uint32_t> pserver_ranks;
    std::string what;         // see Due
    bool resets_geo = false;  // it has another number of workers, each with optimizer state
  };
  struct Stay {
    std::string why;
    bool told = false;
  };
  // OK when the job can be scaled now, apart from the workers that it needs.
  absl::Status CheckScale(const Job& job, uint32_t worker_num) const;
  // Asks for a checkpoint that includes all that was trained by now.
  absl::Status Ask(Job* job, absl::Time now, Plan* plan);
  static std::string Describe(const Job& job, const Plan& plan, const std::string& drained);
  // The pservers of the job that are draining, e.g. "pserver 1".
  std::string Drained(const Job& job) const;

  const Parts parts_;
  std::map<const Job*, Plan> plans_;
  std::map<const Job*, Former> former_;  // between 2 and 3
  std::map<const Job*, Stay> stays_;     // a plan to leave a pserver has failed
};

}  // namespace sluice
