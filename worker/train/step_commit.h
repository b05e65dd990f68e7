// How a sync rank commits its steps, and learns that they have closed.
//
// A rank commits a step when its gradients are where they must be: held by the pservers, or reduced
// by all ranks. The step closes when every rank has committed it, and only then does anybody make
// its update. Pservers close the steps of a job that has tables there; the ranks of a job without
// such tables close them among themselves.
//
// Thread safety: one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/parameter_client.h"
#include "model/net/dense_net.h"
#include "worker/context/job_context.h"
#include "worker/dense/rank_meetings.h"

namespace sluice {

class StepCommit {
 public:
  // `context` outlives the result.
  static std::unique_ptr<StepCommit> Create(const JobContext& context);
  // True when the ranks of the job close its steps among themselves, because pservers have no
  // tables of it.
  static bool IsAmongRanks(const JobContext& context);
  virtual ~StepCommit() = default;

  // Starts the pull of the values for the first step of an epoch.
  virtual void StartPull(PullRequest first) = 0;
  // Brings this rank's part of global step `step` (0-based) to the pservers. Returns when every
  // pserver holds it.
  virtual absl::Status Push(uint64_t step, PushRequest push) = 0;
  // Commits the step, and starts the pull of the values for the one after it; `next` is empty when
  // there is none. `checkpoint`, from rank 0 only: the one to cut after the step; 0: none.
  virtual absl::Status Start(uint64_t step, PullRequest next, uint64_t checkpoint) = 0;
  // Waits until the step that was committed last has closed, and for the values of the last pull.
  // UNAVAILABLE, DEADLINE_EXCEEDED: somebody is lost or slow. CANCELLED.
  virtual absl::Status Wait() = 0;
  // As Wait, but returns nullopt soon after `stop`, the flag of the known end of training, has become
  // true, unless the step has closed. Then call it or Wait again, or Drop.
  virtual std::optional<absl::Status> WaitUnless(const std::atomic<bool>& stop) {
    (void)stop;
    return Wait();
  }
  // The step that was committed last never closes. Its buffers are free.
  virtual void Drop() {}
  // The checkpoint that is cut after the step that closed last, as all ranks know it; 0: none.
  virtual uint64_t checkpoint_seen() const = 0;
};

// Pservers close the steps: commit(t) goes to all of them, fused with pull(t + 1).
class PserverCommit : public StepCommit {
 public:
  explicit PserverCommit(const JobContext& context) : context_(context) {}
  void StartPull(PullRequest first) override;
  absl::Status Push(uint64_t step, PushRequest push) override;
  absl::Status Start(uint64_t step, PullRequest next, uint64_t checkpoint) override;
  // Meanwhile the rank attends the meetings of ranks that keep the dense tables. The step may lack
  // a lost rank's commit, whose next life needs the tables first.
  absl::Status Wait() override;
  std::optional<absl::Status> WaitUnless(const std::atomic<bool>& stop) override;
  void Drop() override { context_.client->DropPull(ticket_); }
  uint64_t checkpoint_seen() const override { return context_.client->checkpoint_seen(); }

 private:
  const JobContext& context_;
  ParameterClient::Ticket ticket_ = 0;
};

// The ranks close the steps: each brings a record, and rank 0 names the checkpoint in its own. No
// rank has the records of all before every rank has committed.
//
// When a rank is lost, the records of some ranks may be complete and those of others not. Then the
// ranks meet: if one of them knows that the step has closed, it has closed for all. Otherwise they
// commit it again, with the next life of the lost rank. The records also have the sums of each rank
// in the epoch, with which that life continues.
//
// When a program ends the job, the scheduler knows how many steps its rank has seen to close. So
// these have closed for all, and nobody brings the record of a later one.
class CollectiveCommit : public StepCommit {
 public:
  // All outlive this. `stats` may be null: the sums are 0. `program`: the network of a program;
  // null if it is none. The records have no room for a state that it keeps.
  CollectiveCommit(RankMeetings* meetings, WorkerStats* stats, const DenseNet* program = nullptr)
      : meetings_(meetings), stats_(stats), program_(program) {}
  void StartPull(PullRequest) override {}
  absl::Status Push(uint64_t, PushRequest) override { return absl::OkStatus(); }
  // FAILED_PRECONDITION: the program keeps a state, which would be lost with this rank.
  absl::Status Start(uint64_t step, PullRequest next, uint64_t checkpoint) override;
  absl::Status Wait() override;
  std::optional<absl::Status> WaitUnless(const std::atomic<bool>& stop) override;
  void Drop() override { started_.reset(); }
  uint64_t checkpoint_seen() const override { return seen_; }

 private:
  struct Commit {
    uint64_t step = 0, checkpoint = 0;
    TrainTotals totals;
  };
  // Exchanges the records of the ranks.
  absl::StatusOr<ClosedStep> Close(const Commit& own);

  RankMeetings* const meetings_;
  WorkerStats* const stats_;
  const DenseNet* const program_;
  std::optional<Commit> started_;
  uint64_t seen_ = 0;
};

}  // namespace sluice
