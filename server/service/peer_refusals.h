// Records in the audit log the requests that a pserver refuses to the peers of its streams.
//
// Refusals with a cause (refusal_reason.h) are recorded at once. A hello for a job that is not open
// here has no cause yet: the members of a job learn at different moments that it begins or ends.
// Such a hello is recorded with RefusalReason::kJob if the scheduler has not sent the job to this
// pserver within kPatience.
//
// Thread safety: safe from any thread.
//
// Memory: kMaxWaiting hellos, and the names of kMaxPast jobs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/security/audit_log.h"
#include "common/security/peer_identity.h"
#include "proto/scheduler.pb.h"

namespace sluice {

// A refusal that a handler has sent to the peer of its stream. Valid during the call that it is
// passed to.
struct StreamRefusal {
  const absl::Status& why;
  // As the hello says, after CheckJobIdOfHello; empty before it.
  absl::string_view job_id;
  uint64_t instance = 0;
  // The speaker according to its hello: "rank" or "pserver", and its number.
  const char* member = "";
  uint32_t number = 0;
};
using OnRefused = std::function<void(const StreamRefusal& refusal)>;

// INVALID_ARGUMENT: the `job_id` of a hello is longer than any job's, and must not be kept.
absl::Status CheckJobIdOfHello(absl::string_view job_id);

class PeerRefusals {
 public:
  static constexpr absl::Duration kPatience = absl::Seconds(10);
  static constexpr size_t kMaxWaiting = 64;
  static constexpr size_t kMaxPast = 256;

  // Both outlive this. `audit` may be null: nothing is recorded.
  PeerRefusals(AuditLog* audit, Clock* clock) : audit_(audit), clock_(clock) {}

  // Records what is refused to `peer` on streams of `method`, which outlives the result, as does
  // this. Null without an audit log.
  OnRefused Of(const PeerIdentity& peer, const char* method);

  // The jobs that the scheduler wants to be served here now. Those before are remembered.
  void SetJobs(const google::protobuf::RepeatedPtrField<JobSpec>& desired);

  // Records the hellos that have waited for kPatience, or with `all` all of them. Call it about
  // once a second.
  void RecordStrayHellos(bool all = false);

 private:
  using Job = std::pair<std::string, uint64_t>;  // id and instance
  struct Hello {
    AuditedCaller caller;
    const char* method;
    absl::Status why;
    Job job;
    absl::Time since;
  };

  void Keep(Hello hello);
  bool Knows(const Job& job) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  AuditLog* const audit_;
  Clock* const clock_;

  Mutex mutex_;
  std::deque<Hello> waiting_ ABSL_GUARDED_BY(mutex_);
  std::set<Job> jobs_ ABSL_GUARDED_BY(mutex_);
  std::deque<Job> past_jobs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
