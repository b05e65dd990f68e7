#include "server/service/peer_refusals.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/security/refusal_reason.h"

namespace sluice {
namespace {

// Job ids are shorter. A peer must not make this process keep longer ones.
constexpr size_t kMaxJobIdBytes = 256;
constexpr size_t kMaxDetailBytes = 400;  // what an audit log takes

// The refusal with the speaker in front. A certificate may be that of many ranks.
absl::Status Naming(const StreamRefusal& refusal) {
  if (refusal.job_id.empty()) return refusal.why;
  const std::string text =
      absl::StrCat(refusal.member, " ", refusal.number, " of ", refusal.job_id, ": ",
                   absl::string_view(refusal.why.message()).substr(0, kMaxDetailBytes));
  return Because(*CauseOf(refusal.why), absl::Status(refusal.why.code(), text));
}

}  // namespace

absl::Status CheckJobIdOfHello(absl::string_view job_id) {
  if (job_id.size() <= kMaxJobIdBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the job id of the hello has ", job_id.size(),
                                                 " bytes; at most ", kMaxJobIdBytes,
                                                 " are allowed"));
}

OnRefused PeerRefusals::Of(const PeerIdentity& peer, const char* method) {
  if (audit_ == nullptr) return nullptr;
  return [this, peer, method](const StreamRefusal& refusal) {
    const std::optional<RefusalReason> cause = CauseOf(refusal.why);
    if (!cause.has_value()) return;
    const AuditedCaller caller = CallerOf(peer, peer.address);
    // A worker may have heard of a job before this pserver, so such a hello is recorded only if the
    // job does not follow (RecordStrayHellos).
    if (*cause == RefusalReason::kJob) {
      Keep({caller,
            method,
            Naming(refusal),
            {std::string(refusal.job_id), refusal.instance},
            clock_->Now()});
    } else {
      audit_->Refused(caller, method, Naming(refusal));
    }
  };
}

void PeerRefusals::SetJobs(const google::protobuf::RepeatedPtrField<JobSpec>& desired) {
  std::set<Job> jobs;
  for (const JobSpec& spec : desired) jobs.insert({spec.job_id(), spec.instance()});
  MutexLock lock(&mutex_);
  // Workers of a job that has ended may still connect for a moment, which is no attack.
  for (const Job& job : jobs_) {
    if (jobs.count(job) == 0) past_jobs_.push_back(job);
  }
  while (past_jobs_.size() > kMaxPast) past_jobs_.pop_front();
  jobs_ = std::move(jobs);
}

void PeerRefusals::Keep(Hello hello) {
  {
    MutexLock lock(&mutex_);
    if (Knows(hello.job)) return;
    waiting_.push_back(std::move(hello));
  }
  // Beyond kMaxWaiting the oldest are recorded at once: a peer cannot fill the memory with hellos.
  RecordStrayHellos();
}

void PeerRefusals::RecordStrayHellos(bool all) {
  std::vector<Hello> stray;
  const absl::Time now = clock_->Now();
  {
    MutexLock lock(&mutex_);
    while (!waiting_.empty()) {
      Hello& oldest = waiting_.front();
      const bool due = all || waiting_.size() > kMaxWaiting || now - oldest.since >= kPatience;
      if (!due) break;
      if (!Knows(oldest.job)) stray.push_back(std::move(oldest));
      waiting_.pop_front();
    }
  }
  for (const Hello& hello : stray) audit_->Refused(hello.caller, hello.method, hello.why);
}

bool PeerRefusals::Knows(const Job& job) const {
  return jobs_.count(job) > 0 ||
         std::find(past_jobs_.begin(), past_jobs_.end(), job) != past_jobs_.end();
}

}  // namespace sluice
