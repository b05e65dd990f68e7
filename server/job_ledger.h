// The books of one job: who may speak, which frames count, which steps and epochs have ended, and
// which pulls wait.
//
// Admit comes before anything of a message is applied, Complete after all of the request is; each
// takes the lock once. What happens on the shards in between is not the ledger's: it locks no shard
// and sends nothing.
//
// Thread safety: safe from any thread.
//
// Memory: at most kMaxParkedPerWorker pulls for each worker wait.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/wire/frame.h"
#include "proto/scheduler.pb.h"
#include "server/delivery_gate.h"
#include "server/job_view.h"
#include "server/parked_pulls.h"
#include "server/shard.h"
#include "server/staleness_clock.h"
#include "server/step_barrier.h"

namespace sluice {

class JobLedger {
 public:
  static constexpr size_t kMaxParkedPerWorker = 64;
  using View = std::shared_ptr<const JobView>;

  // A request whose parts have all been applied.
  struct Request {
    Caller caller;
    DecodedFrame frame;   // its last message; the payload stands at the keys of the pull
    View view;            // as admitted
    bool counts = false;  // the frame of its push is complete, in order and valid
    absl::Status commit;  // whether every shard holds the push that it commits
    std::unique_ptr<ReplyWriter>* reply = nullptr;  // taken when the pull is parked
  };

  struct Outcome {
    // Not OK: the request is refused. What it counted stays counted.
    absl::Status status;
    // Work for every shard: when either is set, nothing else is decided yet. Do it, then call
    // Settle.
    bool close_step = false, flush = false;
    bool parked = false;  // the pull waits, and its reply was taken
    ReplyStamp stamp;     // for the answer, when neither refused nor parked
    // Parked pulls that became ready: to be answered, whatever becomes of the request.
    std::vector<ParkedPull> ready;
  };

  // `clock` outlives the ledger.
  JobLedger(std::string job_id, const UpdatePolicy& policy, View view, Clock* clock);

  // Returns the view whose shards must fence the earlier lives of the rank before TakeReady; null
  // when this life was known. INVALID_ARGUMENT: no such rank. ABORTED: a later life has spoken.
  absl::StatusOr<View> Hello(const Caller& caller);

  // The job's view, for a message of this generation. NOT_FOUND: the job is closed. ABORTED: the
  // sender is fenced. FAILED_PRECONDITION: the job has another generation.
  absl::StatusOr<View> Admit(const Caller& caller, uint64_t generation);

  // In this order: counts the frame, records the commit and the end of the epoch, takes the parked
  // pulls that this made ready, and parks the request's own pull or stamps its answer. Values must
  // be read after this: staleness is then never counted too small. INVALID_ARGUMENT: the commit or
  // the pull is of a step that is not open. NOT_FOUND: the job was closed. RESOURCE_EXHAUSTED: too
  // many pulls wait.
  Outcome Complete(Request* request);
  // The rest of Complete, after the shards did what `done` asked for.
  Outcome Settle(Request* request, const Outcome& done);

  // Parked pulls that are ready now.
  std::vector<ParkedPull> TakeReady();
  // Forgets the parked pulls of a stream that nobody reads any more.
  void ForgetStream(uint64_t stream);
  // Admits nothing from now on. Returns the parked pulls, to be refused.
  std::vector<ParkedPull> Close();

  View view();
  // Keeps the view with the higher generation. REQUIRES: the same active ranks, since barrier and
  // staleness clock cannot let ranks join or leave yet.
  void SetView(View view);
  // The job must end with this error; the first one is kept.
  void Fail(const std::string& error);
  // Fills what the ledger knows: generation, error, frames, staleness or the slowest rank, and what
  // the job waits for.
  void FillReport(HostedJob* report);
  size_t parked();

 private:
  // True when parked pulls may have become ready.
  bool CountFrame(const Caller& caller, const Push& push) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CommitStep(uint32_t rank, uint64_t step, bool* close)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // True when every active rank has ended the epoch.
  bool EndEpoch(uint32_t rank, uint32_t epoch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<ParkedPull> TakeReadyLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AnswerOrPark(Request* request, Outcome* outcome) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Ready(uint32_t rank, const Pull& pull, uint64_t step) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  ReplyStamp StampFor(uint32_t rank) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string WaitingFor() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string job_id_;
  const Mode mode_;
  Clock* const clock_;

  Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  View view_ ABSL_GUARDED_BY(mutex_);
  std::string error_ ABSL_GUARDED_BY(mutex_);
  DeliveryGate frames_ ABSL_GUARDED_BY(mutex_);  // whole frames, for fencing and counting
  StalenessClock staleness_ ABSL_GUARDED_BY(mutex_);
  StepBarrier barrier_ ABSL_GUARDED_BY(mutex_);                 // sync
  std::vector<uint32_t> epochs_ended_ ABSL_GUARDED_BY(mutex_);  // by rank
  uint32_t epochs_flushed_ ABSL_GUARDED_BY(mutex_) = 0;
  ParkedPulls parked_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
