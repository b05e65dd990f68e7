// Keeps the state of one job that is not in its shards: fencing, counted frames, commits, ends of
// epochs, ranks that are awaited, and parked pulls.
//
// Call Admit before anything of a message is applied, and Complete after the whole request is. Each
// takes the lock once. The ledger never touches a shard and sends nothing.
//
// Thread safety: safe from any thread.
//
// Memory: at most kMaxParkedPerWorker parked pulls per worker, whose keys have at most
// kMaxParkedBytesPerWorker together.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/config/mode.h"
#include "common/wire/frame.h"
#include "proto/scheduler.pb.h"
#include "server/requests/job_view.h"
#include "server/requests/parked_pulls.h"
#include "server/requests/staleness_clock.h"
#include "server/requests/step_barrier.h"
#include "server/shards/delivery_gate.h"
#include "server/shards/shard.h"

namespace sluice {

class JobLedger {
 public:
  static constexpr size_t kMaxParkedPerWorker = 64;
  // Counts their keys. Each pull may also keep one slice of its push (kChunkBytes, frame.h).
  static constexpr size_t kMaxParkedBytesPerWorker = size_t{64} << 20;
  using View = std::shared_ptr<const JobView>;

  // A request whose parts have all been applied.
  struct Request {
    Caller caller;
    DecodedFrame frame;   // its last message; the payload is at the keys of the pull
    View view;            // as admitted
    bool counts = false;  // the frame of its push is complete, in order and valid
    absl::Status commit;  // whether every shard holds the push that it commits
    std::unique_ptr<ReplyWriter>* reply = nullptr;  // taken when the pull is parked
  };

  struct Outcome {
    // Not OK: the request is refused. Its frame stays counted.
    absl::Status status;
    // Work for every shard. When either is set, nothing else is decided yet: do the work, then call
    // Settle.
    bool close_step = false, flush = false;
    uint64_t checkpoint = 0;  // with close_step: its cut begins right after; 0: none
    bool parked = false;      // the pull waits, and its reply was taken
    ReplyStamp stamp;         // for the answer, when neither refused nor parked
    // Parked pulls that became ready. Answer them even if the request is refused.
    std::vector<ParkedPull> ready;
  };

  // `clock` outlives the ledger. In sync mode, steps up to `closed` are done.
  JobLedger(std::string job_id, const UpdatePolicy& policy, View view, Clock* clock,
            uint64_t closed = 0);

  // Returns the view whose shards must fence the earlier lives of the rank before TakeReady; null
  // when this life is already known. INVALID_ARGUMENT: no such rank. ABORTED: a later life has
  // spoken.
  absl::StatusOr<View> Hello(const Caller& caller);

  // The shards have taken over from a lost pserver's, and await every rank.
  // REQUIRES: no rank has spoken yet.
  void AwaitRanks();
  // Returns the view whose shards await the rank (Shard::Hear); null when the rank is not awaited.
  // FAILED_PRECONDITION: the rank is awaited, but has another route than this pserver, so it cannot
  // know which shards await it.
  absl::StatusOr<View> Awaits(const Caller& caller, uint64_t generation);
  // All shards have heard from the awaited rank. Each of them now holds its frames up to
  // `sequence`, which are not counted here, and it has ended `epochs_ended` epochs. Returns true
  // when that was the last rank to end an epoch, so that the shards must be flushed.
  bool Heard(const Caller& caller, uint64_t sequence, uint32_t epochs_ended);
  bool awaits_any();

  // Returns the job's view, for a message of this generation. NOT_FOUND: the job is closed.
  // UNAVAILABLE: the rank is awaited, and must say hello on a new stream.
  // ABORTED: the sender is fenced. FAILED_PRECONDITION: the job has another generation.
  absl::StatusOr<View> Admit(const Caller& caller, uint64_t generation);

  // Counts the frame, then records the commit and the end of the epoch. Then takes the parked pulls
  // that this made ready, and parks the request's own pull or stamps its answer. Read values only
  // after this call, so that staleness is never counted too small. INVALID_ARGUMENT: the commit or
  // the pull names a step that is not open. ABORTED: the sender was fenced since it was admitted,
  // and nothing was recorded. NOT_FOUND: the job was closed. RESOURCE_EXHAUSTED: too many pulls
  // wait.
  Outcome Complete(Request* request);
  // Does the rest of Complete, once the shards have done the work in `done`.
  Outcome Settle(Request* request, const Outcome& done);

  // The findings of Fence.
  struct Fenced {
    std::vector<ParkedPull> dropped;  // of fenced lives; the caller must refuse them
    // By rank, sync: the rank's last commit, and the one before it.
    std::vector<Commit> commits, commits_before;
  };
  // Fences the lives of each rank before incarnations[rank]. From now on, their requests count
  // nothing, even those that were admitted before; the shards must be fenced next. max_staleness
  // treats such a rank as idle, so call TakeReady afterwards: fewer pulls may have to wait.
  // REQUIRES: one incarnation for each rank.
  Fenced Fence(const std::vector<uint64_t>& incarnations);

  // Sync: records a commit of a rank whose life has been fenced. Every shard holds its push. A
  // repeated commit changes nothing. With outcome.close_step, apply the step and call StepClosed.
  // INVALID_ARGUMENT: the commit names a step that is not open.
  Outcome CommitForLost(uint32_t rank, const Commit& commit);
  // Opens the next step after CommitForLost, and returns the parked pulls that are ready now.
  std::vector<ParkedPull> StepClosed(const Outcome& done);
  // Sync: the last step that has closed.
  uint64_t closed_step();

  // Removes and returns the parked pulls that are ready now.
  std::vector<ParkedPull> TakeReady();
  // Drops the parked pulls of a stream that has closed.
  void ForgetStream(uint64_t stream);
  // Admits nothing from now on. Returns the parked pulls, which the caller must refuse.
  std::vector<ParkedPull> Close();

  View view();
  // Keeps the view with the higher generation.
  // REQUIRES: the same active ranks, since barrier and staleness clock cannot let ranks join or
  // leave yet.
  void SetView(View view);
  // Reports that the job must end with this error. The first error is kept.
  void Fail(const std::string& error);
  // Fills in the ledger's part of the report: generation, error, frames, staleness or the slowest
  // rank, ranks that are awaited, and what the job waits for.
  void FillReport(HostedJob* report);
  size_t parked();

 private:
  // Returns true when parked pulls may have become ready.
  bool CountFrame(const Caller& caller, const Push& push) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // ABORTED: a later life of the rank is known.
  absl::Status CheckLife(const Caller& caller) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // FAILED_PRECONDITION: the view has another generation.
  absl::Status CheckGeneration(uint64_t generation) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CommitStep(uint32_t rank, const Commit& commit, Outcome* outcome)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The shards have done what `done` asks for when a step closes.
  void CloseStep(const Outcome& done) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns true when every active rank has ended the epoch.
  bool EndEpoch(uint32_t rank, uint32_t epoch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<ParkedPull> TakeReadyLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AnswerOrPark(Request* request, Outcome* outcome) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Ready(uint32_t rank, const Pull& pull, uint64_t step) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  ReplyStamp StampFor(uint32_t rank) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string WaitingFor() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string job_id_;
  const Mode mode_;
  const bool pulls_may_wait_;  // in this mode
  Clock* const clock_;

  Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  View view_ ABSL_GUARDED_BY(mutex_);
  std::string error_ ABSL_GUARDED_BY(mutex_);
  DeliveryGate frames_ ABSL_GUARDED_BY(mutex_);        // whole frames, for fencing and counting
  std::vector<bool> awaited_ ABSL_GUARDED_BY(mutex_);  // by rank
  StalenessClock staleness_ ABSL_GUARDED_BY(mutex_);
  StepBarrier barrier_ ABSL_GUARDED_BY(mutex_);  // sync
  // Sync: by rank, the last one and the one before it.
  std::vector<Commit> commits_ ABSL_GUARDED_BY(mutex_), commits_before_ ABSL_GUARDED_BY(mutex_);
  uint64_t wanted_cut_ ABSL_GUARDED_BY(mutex_) = 0;             // after the open step; 0: none
  uint64_t cut_ ABSL_GUARDED_BY(mutex_) = 0;                    // after the last closed step
  std::vector<uint32_t> epochs_ended_ ABSL_GUARDED_BY(mutex_);  // by rank
  uint32_t epochs_flushed_ ABSL_GUARDED_BY(mutex_) = 0;
  ParkedPulls parked_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
