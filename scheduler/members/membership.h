// Tracks the members of the cluster: one per (role, rank), alive while it reports within its lease.
//
// A broken connection shortens the lease: the system of a process that has died closes its
// connections, which is known long before the lease runs out.
//
// Invariants:
// - A member id is never issued twice, not even after a restart of the scheduler: the first id is
//   random.
// - A living member keeps its (role, rank) until its lease runs out, it leaves, or its process is
//   known to have ended.
// - When a (role, rank) has had two lives, only the newer one is listened to.
// - A pserver rank that an operator drains stays so with its next process, unless the earlier one
//   has left: it was drained for good, so that its successor is a new pserver. A drain that the
//   process asked for itself ends with that process.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/daemon/role_name.h"
#include "proto/scheduler.pb.h"

namespace sluice {

struct Member {
  uint64_t id = 0;
  RegisterRequest self;
  bool alive = true;
  bool left = false;     // has called Leave
  std::string why_gone;  // when not alive
  absl::Time last_seen;
  absl::Time cut_off_at = absl::InfiniteFuture();  // its connection broke, and it is silent since
  bool polled = false;
  uint64_t version = 1;       // of its desired state
  uint64_t seen_version = 0;  // the newest version that it reports to have seen
  std::string job_id;         // worker: the job it is allocated to
  // Its last report.
  std::map<std::string, HostedJob> hosted;
  WorkerProgress progress;  // job_id empty: it runs nothing
  uint64_t memory_bytes = 0;
  double cpu_seconds = 0;
  StreamCounts streams;   // pserver
  bool draining = false;  // pserver: it gets no shards any more

  // True for a worker that can be given a job: it has reported that it runs none.
  bool free() const { return alive && polled && job_id.empty() && progress.job_id().empty(); }
  // Also that it is the job's program, or that neither is one.
  bool free_for(const JobConfig& job) const {
    return free() && self.program() == job.model().program().digest();
  }
};

// A pserver rank that gets no shards any more.
struct DrainMark {
  bool of_process = false;  // its present process asked, because it is to end; else an operator
  bool left = false;        // its process has left since
};

// "worker 1 (pid 123 on host h)", "pserver 0 (10.0.0.1:5000, pid 7 on host h)".
std::string DescribeMember(const Member& member);

class Membership {
 public:
  // Ranks whose number is not stated are below this, so that no caller can add members without end.
  static constexpr uint32_t kMaxRanks = 4096;

  struct Options {
    uint32_t pserver_num = kMaxRanks;  // ranks below this may register
    uint32_t worker_num = 0;           // likewise; 0: any below kMaxRanks
    // Addresses of the pservers by rank, as the cluster file lists them; may be empty.
    std::vector<std::string> pservers;
    absl::Duration lease = absl::Seconds(10);
    // A member whose connection has broken is lost when it does not report within this time.
    absl::Duration reconnect = absl::InfiniteDuration();
    uint64_t first_id = 1;
  };
  explicit Membership(Options options) : options_(std::move(options)) {}

  // Members that are gone are forgotten after this time, unless the cluster is configured to have
  // them: these are missed until they come back.
  static constexpr absl::Duration kRemembered = absl::Hours(1);

  // Returns the new member, or null when a living member has the role and rank. A newcomer that is
  // `believed` replaces it if it says that the process of that member has ended. *fenced becomes
  // the life that the new member ends (id 0: none); the caller handles it as lost. A life that asks
  // again gets its own member back. INVALID_ARGUMENT for a rank out of range or a pserver without
  // address, FAILED_PRECONDITION for another protocol.
  absl::StatusOr<Member*> Register(const RegisterRequest& request, bool believed, absl::Time now,
                                   Member* fenced);
  // True when a newcomer says that the process of the living member with its role and rank has
  // ended, or shows it by having the same pid.
  bool SaysEnded(const RegisterRequest& newcomer) const;

  // Returns the living member. ABORTED: a newer life has fenced it. CANCELLED: it has left.
  // NOT_FOUND: its lease ran out or this scheduler never knew it, so it must register again.
  absl::StatusOr<Member*> Find(uint64_t id);

  void Report(const PollRequest& request, absl::Time now, Member* member);
  // The connection of the member's waiting report has broken: its process may have ended, and the
  // system closed its sockets. Does nothing unless the member is alive.
  void NoteCutOff(uint64_t id, absl::Time now);
  // Marks the members as gone whose lease has run out, or which did not come back after their
  // connection had broken, and returns them.
  std::vector<Member*> Expire(absl::Time now);
  // Forgets members that have been gone for kRemembered.
  void Forget(absl::Time now);
  // Gives every member a full lease from `now` on, because the scheduler itself did not run.
  void ForgiveSilence(absl::Time now) { judged_from_ = now; }
  void MarkGone(Member* member, std::string why);
  // Call when the member's process ends in order.
  void MarkLeft(Member* member, const std::string& reason);

  // Null when no such member has registered.
  Member* At(Role role, uint32_t rank);
  const Member* At(Role role, uint32_t rank) const;
  Member* ById(uint64_t id);
  const Member* ById(uint64_t id) const;
  // The member with this process, which may be gone; null when there is none.
  Member* FindProcess(const MemberEndedRequest& process);
  std::vector<Member*> All();
  // By ascending rank.
  std::vector<Member*> Alive(Role role);
  std::vector<const Member*> Alive(Role role) const;
  // Living members of the process space that have not reported for `silence`.
  std::vector<MemberEndedRequest> Silent(const std::string& process_space, absl::Duration silence,
                                         absl::Time now) const;
  // Marks a pserver as draining, also one that has not registered. A mark of an operator stays when
  // its process also asks.
  void Drain(uint32_t rank, DrainMark mark = {});
  void CancelDrain(uint32_t rank);
  const std::map<uint32_t, DrainMark>& draining() const { return draining_; }  // by rank
  // Living pservers that are not draining, by ascending rank.
  std::vector<const Member*> UsablePservers() const;
  // Configured members that are not alive, e.g. "pserver 1 (10.0.0.2:5000) to register". Pservers
  // that are draining are not missed.
  std::vector<std::string> MissingPservers() const;
  std::vector<std::string> MissingWorkers() const;

 private:
  absl::Status CheckRegistration(const RegisterRequest& request) const;
  uint32_t NumberOf(Role role) const {
    return role == ROLE_PSERVER ? options_.pserver_num : options_.worker_num;
  }
  // A cluster may leave open how many workers it has.
  bool IsStated(Role role) const { return role == ROLE_PSERVER || options_.worker_num > 0; }

  const Options options_;
  uint64_t next_id_ = options_.first_id;
  absl::Time judged_from_ = absl::InfinitePast();
  std::map<std::pair<Role, uint32_t>, Member> members_;
  absl::flat_hash_map<uint64_t, Member*> by_id_;  // of members_
  std::map<uint32_t, DrainMark> draining_;
};

}  // namespace sluice
