#include "server/requests/job_ledger.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/security/refusal_reason.h"

namespace sluice {
namespace {

absl::Status FencedError(const Caller& caller, uint64_t incarnation) {
  return absl::AbortedError(absl::StrCat("incarnation ", caller.incarnation, " of rank ",
                                         caller.rank, " is fenced by incarnation ", incarnation,
                                         "; this process must stop"));
}

}  // namespace

JobLedger::JobLedger(std::string job_id, const UpdatePolicy& policy, View view, Clock* clock,
                     uint64_t closed)
    : job_id_(std::move(job_id)),
      mode_(policy.mode),
      pulls_may_wait_(policy.mode == Mode::kSync || policy.max_staleness.has_value()),
      clock_(clock),
      view_(std::move(view)),
      frames_(policy.worker_num, policy.mode == Mode::kSync),
      awaited_(policy.worker_num),
      staleness_(policy.worker_num, policy.max_staleness),
      barrier_(view_->active_ranks, closed),
      commits_(policy.mode == Mode::kSync ? policy.worker_num : 0),
      commits_before_(commits_.size()),
      epochs_ended_(policy.worker_num),
      parked_(kMaxParkedPerWorker, kMaxParkedBytesPerWorker) {
  // In sync a frame has the number of its step, also in a job that resumes.
  if (mode_ == Mode::kSync) frames_.StartAt(closed);
  for (Commit& commit : commits_) commit.set_sequence(closed);
}

absl::StatusOr<JobLedger::View> JobLedger::Hello(const Caller& caller) {
  MutexLock lock(&mutex_);
  const std::vector<bool>& active = view_->active_ranks;
  if (caller.rank >= active.size() || !active[caller.rank]) {
    return absl::InvalidArgumentError(absl::StrCat("job ", job_id_, " has no active rank ",
                                                   caller.rank, " among its ", active.size(),
                                                   " workers"));
  }
  const uint64_t known = frames_.incarnation(caller.rank);
  // Whether the hello is late or replayed: only a process that still runs, or another one, says it.
  if (caller.incarnation < known)
    return Because(RefusalReason::kFenced, FencedError(caller, known));
  if (caller.incarnation == known) return nullptr;
  frames_.Fence(caller.rank, caller.incarnation);
  // Nobody waits for the new life before its first pull or push.
  staleness_.SetIdle(caller.rank);
  return view_;
}

absl::Status JobLedger::CheckLife(const Caller& caller) const {
  const uint64_t known = frames_.incarnation(caller.rank);
  return caller.incarnation < known ? FencedError(caller, known) : absl::OkStatus();
}

void JobLedger::AwaitRanks() {
  MutexLock lock(&mutex_);
  awaited_.assign(awaited_.size(), true);
}

absl::StatusOr<JobLedger::View> JobLedger::Awaits(const Caller& caller, uint64_t generation) {
  MutexLock lock(&mutex_);
  if (!awaited_[caller.rank]) return nullptr;
  SLUICE_RETURN_IF_ERROR(CheckLife(caller));
  SLUICE_RETURN_IF_ERROR(CheckGeneration(generation));
  return view_;
}

bool JobLedger::Heard(const Caller& caller, uint64_t sequence, uint32_t epochs_ended) {
  MutexLock lock(&mutex_);
  if (!awaited_[caller.rank] || !CheckLife(caller).ok()) return false;
  awaited_[caller.rank] = false;
  // The ledger's own gate continues where the shards do.
  frames_.Await(caller.rank, caller.incarnation, sequence);
  frames_.Hear(caller.rank, caller.incarnation, sequence);
  return epochs_ended > 0 && EndEpoch(caller.rank, epochs_ended - 1);
}

bool JobLedger::awaits_any() {
  MutexLock lock(&mutex_);
  return std::find(awaited_.begin(), awaited_.end(), true) != awaited_.end();
}

absl::Status JobLedger::CheckGeneration(uint64_t generation) const {
  if (generation == view_->generation) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the request has generation ", generation, ", but job ", job_id_,
                   " has generation ", view_->generation, "; fetch the route and send it again"));
}

absl::StatusOr<JobLedger::View> JobLedger::Admit(const Caller& caller, uint64_t generation) {
  MutexLock lock(&mutex_);
  if (closed_) {
    return absl::NotFoundError(absl::StrCat("job ", job_id_, " is not open on this pserver"));
  }
  SLUICE_RETURN_IF_ERROR(CheckLife(caller));
  SLUICE_RETURN_IF_ERROR(CheckGeneration(generation));
  if (awaited_[caller.rank]) {
    return absl::UnavailableError(absl::StrCat("shards of job ", job_id_,
                                               " that were restored await the hello of rank ",
                                               caller.rank, "; open a new stream"));
  }
  return view_;
}

JobLedger::Outcome JobLedger::Complete(Request* request) {
  const FrameHeader& header = request->frame.header;
  const uint32_t rank = request->caller.rank;
  Outcome outcome;
  // A pull that is parked keeps its keys, and not a push or padding that came with them. That is
  // released after the lock.
  PayloadReader whole;
  if (header.has_pull() && pulls_may_wait_) {
    whole = std::move(request->frame.payload);
    request->frame.payload = PayloadReader(whole.Keep(whole.remaining()));
  }
  MutexLock lock(&mutex_);
  // The report of Fence about this life must stay true.
  outcome.status = CheckLife(request->caller);
  if (!outcome.status.ok()) return outcome;
  // Allocate before anything changes: a request without memory then fails as a whole.
  if (header.has_pull()) parked_.MakeRoom();
  bool changed = request->counts && CountFrame(request->caller, header.push());
  if (header.has_commit()) {
    outcome.status = request->commit;
    if (outcome.status.ok()) {
      outcome.status = CommitStep(rank, header.commit(), &outcome);
    }
  }
  if (outcome.status.ok() && header.has_end_epoch()) {
    outcome.flush = EndEpoch(rank, header.end_epoch().epoch());
    changed = true;
  }
  if (outcome.close_step || outcome.flush) return outcome;
  if (changed) outcome.ready = TakeReadyLocked();
  if (outcome.status.ok()) AnswerOrPark(request, &outcome);
  return outcome;
}

JobLedger::Outcome JobLedger::Settle(Request* request, const Outcome& done) {
  Outcome outcome;
  MutexLock lock(&mutex_);
  if (done.close_step) CloseStep(done);
  // Other requests may have parked pulls since Complete, in the room that it made.
  if (request->frame.header.has_pull()) parked_.MakeRoom();
  outcome.ready = TakeReadyLocked();
  AnswerOrPark(request, &outcome);
  return outcome;
}

void JobLedger::CloseStep(const Outcome& done) {
  barrier_.Closed();
  cut_ = done.checkpoint;
  wanted_cut_ = 0;
}

JobLedger::Outcome JobLedger::CommitForLost(uint32_t rank, const Commit& commit) {
  Outcome outcome;
  MutexLock lock(&mutex_);
  outcome.status = CommitStep(rank, commit, &outcome);
  return outcome;
}

std::vector<ParkedPull> JobLedger::StepClosed(const Outcome& done) {
  MutexLock lock(&mutex_);
  CloseStep(done);
  return TakeReadyLocked();
}

uint64_t JobLedger::closed_step() {
  MutexLock lock(&mutex_);
  return barrier_.closed();
}

bool JobLedger::CountFrame(const Caller& caller, const Push& push) {
  if (frames_.Admit(caller.rank, caller.incarnation, push.sequence()) !=
      DeliveryGate::Verdict::kApply) {
    return false;
  }
  staleness_.Activate(caller.rank);
  // In sync nothing is stale: every gradient comes from the last step's values.
  staleness_.Applied(caller.rank,
                     mode_ == Mode::kSync ? staleness_.others(caller.rank) : push.pulled_others());
  // The rank pushed again after announcing the end of its epoch: the announcement is withdrawn.
  epochs_ended_[caller.rank] = std::min(epochs_ended_[caller.rank], epochs_flushed_);
  return true;
}

absl::Status JobLedger::CommitStep(uint32_t rank, const Commit& commit, Outcome* done) {
  const uint64_t step = commit.sequence();
  // Record the checkpoint before the step closes, because the last commit may be another rank's. A
  // resent commit names the same checkpoint.
  if (step == barrier_.closed() + 1) wanted_cut_ = std::max(wanted_cut_, commit.checkpoint());
  const StepBarrier::Outcome outcome = barrier_.Commit(rank, step, clock_->Now());
  if (outcome == StepBarrier::Outcome::kAhead) {
    return absl::InvalidArgumentError(absl::StrCat("commit ", step, " of rank ", rank,
                                                   ", but step ", barrier_.closed() + 1,
                                                   " is open; pull its result first"));
  }
  done->close_step = outcome == StepBarrier::Outcome::kClose;
  if (done->close_step) done->checkpoint = wanted_cut_;
  // A repeated commit must not push out the one before it: a replaced rank resumes from these two.
  if (step > commits_[rank].sequence()) {
    commits_before_[rank] = std::move(commits_[rank]);
    commits_[rank] = commit;
  }
  return absl::OkStatus();
}

bool JobLedger::EndEpoch(uint32_t rank, uint32_t epoch) {
  staleness_.SetIdle(rank);
  epochs_ended_[rank] = std::max(epochs_ended_[rank], epoch + 1);
  uint32_t all = epochs_ended_[rank];
  for (size_t r = 0; r < epochs_ended_.size(); ++r) {
    if (view_->active_ranks[r]) all = std::min(all, epochs_ended_[r]);
  }
  epochs_flushed_ = std::max(all, epochs_flushed_);
  // A rank that took over a dead rank's task after the others were flushed needs a flush as well.
  return all >= epoch + 1;
}

void JobLedger::AnswerOrPark(Request* request, Outcome* outcome) {
  const uint32_t rank = request->caller.rank;
  const FrameHeader& header = request->frame.header;
  const Pull& pull = header.pull();
  if (header.has_pull()) {
    // The sender may have been fenced while its request closed a step.
    outcome->status = CheckLife(request->caller);
    if (!outcome->status.ok()) return;
    if (pull.applied_sequence() > barrier_.closed() + 1) {
      outcome->status = absl::InvalidArgumentError(
          absl::StrCat("pull of rank ", rank, " waits for step ", pull.applied_sequence(),
                       ", but step ", barrier_.closed() + 1, " is open"));
      return;
    }
    // A pull for a push that was applied comes late, over an earlier stream: the rank may be idle.
    const bool obsolete = pull.for_push() > 0 && pull.for_push() <= frames_.last(rank);
    if (!pull.evaluation() && !obsolete) staleness_.Activate(rank);
    if (closed_) {
      outcome->status = absl::NotFoundError(absl::StrCat("job ", job_id_, " was closed"));
      return;
    }
    const uint64_t step = staleness_.StepOf(rank, pull.for_push(), frames_.last(rank));
    if (!Ready(rank, pull, step)) {
      const size_t bytes = ParkedPulls::BytesOf(pull, request->frame.payload);
      if (parked_.FullFor(rank, bytes)) {
        outcome->status = absl::ResourceExhaustedError(absl::StrCat(
            "this pull would exceed the limit for waiting pulls of rank ", rank, " of job ",
            job_id_, ": ", kMaxParkedPerWorker, " pulls or ", kMaxParkedBytesPerWorker,
            " bytes; wait for answers, or ask for fewer rows at once"));
        return;
      }
      parked_.Park({request->caller, std::move(*request->frame.header.mutable_pull()),
                    std::move(request->frame.payload), std::move(request->view),
                    std::move(*request->reply), clock_->Now(), step, ReplyStamp(), bytes});
      outcome->parked = true;
      return;
    }
  }
  outcome->stamp = StampFor(rank);
}

bool JobLedger::Ready(uint32_t rank, const Pull& pull, uint64_t step) const {
  if (mode_ == Mode::kSync) return barrier_.closed() >= pull.applied_sequence();
  // An evaluation computes no gradient, so nobody's pace matters to it.
  return pull.evaluation() || staleness_.Ready(rank, step);
}

ReplyStamp JobLedger::StampFor(uint32_t rank) const {
  // In sync all ranks see the same step, so there is nothing to count.
  return {view_->generation, mode_ == Mode::kSync ? 0 : staleness_.others(rank), cut_};
}

JobLedger::Fenced JobLedger::Fence(const std::vector<uint64_t>& incarnations) {
  Fenced fenced;
  MutexLock lock(&mutex_);
  for (uint32_t rank = 0; rank < incarnations.size(); ++rank) {
    // Lives only rise, so an order that arrives late fences nobody.
    if (incarnations[rank] <= frames_.incarnation(rank)) continue;
    frames_.Fence(rank, incarnations[rank]);
    staleness_.SetIdle(rank);
  }
  fenced.dropped = parked_.Take([this](const ParkedPull& p) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !CheckLife(p.caller).ok();
  });
  fenced.commits = commits_;
  fenced.commits_before = commits_before_;
  return fenced;
}

std::vector<ParkedPull> JobLedger::TakeReady() {
  MutexLock lock(&mutex_);
  return TakeReadyLocked();
}

std::vector<ParkedPull> JobLedger::TakeReadyLocked() {
  std::vector<ParkedPull> ready =
      parked_.Take([this](const ParkedPull& p) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return Ready(p.caller.rank, p.pull, p.step);
      });
  // Under the lock and before values are read: a stamp must not claim updates that they lack.
  for (ParkedPull& p : ready) p.stamp = StampFor(p.caller.rank);
  return ready;
}

void JobLedger::ForgetStream(uint64_t stream) {
  std::vector<ParkedPull> gone;  // Destroyed after the lock is released.
  MutexLock lock(&mutex_);
  gone = parked_.Take([stream](const ParkedPull& p) { return p.caller.stream == stream; });
}

std::vector<ParkedPull> JobLedger::Close() {
  MutexLock lock(&mutex_);
  closed_ = true;
  return parked_.TakeAll();
}

JobLedger::View JobLedger::view() {
  MutexLock lock(&mutex_);
  return view_;
}

void JobLedger::SetView(View view) {
  MutexLock lock(&mutex_);
  // Swapped, so that the old view is freed by the caller, without the lock.
  if (view->generation > view_->generation) view_.swap(view);
}

void JobLedger::Fail(const std::string& error) {
  MutexLock lock(&mutex_);
  // The first error is the cause; later ones often follow from it.
  if (error_.empty()) error_ = error;
}

void JobLedger::FillReport(HostedJob* report) {
  MutexLock lock(&mutex_);
  report->set_generation(view_->generation);
  report->mutable_ranks()->Assign(view_->positions.begin(), view_->positions.end());
  report->set_error(Printable(error_));
  report->set_frames_applied(staleness_.frames());
  for (uint32_t rank = 0; rank < awaited_.size(); ++rank) {
    if (awaited_[rank]) report->add_awaited_ranks(rank);
  }
  if (mode_ == Mode::kSync) {
    report->set_slowest_rank(barrier_.slowest_rank());
    report->set_slowest_wait_s(absl::ToDoubleSeconds(barrier_.slowest_wait()));
  } else {
    report->mutable_staleness()->set_pushes(staleness_.frames());
    report->mutable_staleness()->set_sum(staleness_.staleness_sum());
    report->mutable_staleness()->set_max(staleness_.staleness_max());
  }
  report->set_waiting_for(WaitingFor());
}

std::string JobLedger::WaitingFor() const {
  const absl::Time now = clock_->Now();
  if (mode_ == Mode::kSync) {
    if (!barrier_.waiting()) return "";
    const std::string more =
        barrier_.missing() > 1 ? absl::StrCat(" and ", barrier_.missing() - 1, " more") : "";
    return absl::StrFormat("commit %d of rank %d%s (%.1f s)", barrier_.closed() + 1,
                           barrier_.first_missing(), more,
                           absl::ToDoubleSeconds(now - barrier_.first_commit()));
  }
  const ParkedPull* oldest = parked_.oldest();
  if (oldest == nullptr) return "";
  const std::optional<uint32_t> slowest = staleness_.Blocking(oldest->caller.rank, oldest->step);
  if (!slowest.has_value()) return "";
  return absl::StrFormat("push %d of rank %d, for max_staleness of rank %d (%.1f s)",
                         staleness_.clock(*slowest) + 1, *slowest, oldest->caller.rank,
                         absl::ToDoubleSeconds(now - oldest->since));
}

size_t JobLedger::parked() {
  MutexLock lock(&mutex_);
  return parked_.size();
}

}  // namespace sluice
