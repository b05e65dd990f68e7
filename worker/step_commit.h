// How a sync rank commits its steps, and learns that they have closed.
//
// A rank commits a step when its gradients are where they must be: held by the pservers, or reduced
// by all ranks. The step closes when every rank has committed it, and only then does anybody make
// its update. Pservers close the steps of a job that has tables there; the ranks of a job without
// such tables close them among themselves.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "client/parameter_client.h"
#include "common/collective/collective.h"
#include "worker/job_context.h"

namespace sluice {

class StepCommit {
 public:
  // `context` outlives the result.
  static std::unique_ptr<StepCommit> Create(const JobContext& context);
  virtual ~StepCommit() = default;

  // Starts the pull of the values for the first step of an epoch.
  virtual void StartPull(PullRequest first) = 0;
  // Brings this rank's part of global step `step` (0-based) to the pservers. Returns when every
  // pserver holds it.
  virtual absl::Status Push(uint64_t step, PushRequest push) = 0;
  // Commits the step, and starts the pull of the values for the one after it; `next` is empty when
  // there is none. `checkpoint`, from rank 0 only: the one to cut after the step; 0: none.
  virtual void Start(uint64_t step, PullRequest next, uint64_t checkpoint) = 0;
  // Waits until the step that was committed last has closed, and for the values of the last pull.
  // UNAVAILABLE, DEADLINE_EXCEEDED: somebody is lost or slow. CANCELLED.
  virtual absl::Status Wait() = 0;
  // The checkpoint that is cut after the step that closed last, as all ranks know it; 0: none.
  virtual uint64_t checkpoint_seen() const = 0;
};

// Pservers close the steps: commit(t) goes to all of them, fused with pull(t + 1).
class PserverCommit : public StepCommit {
 public:
  explicit PserverCommit(const JobContext& context) : context_(context) {}
  void StartPull(PullRequest first) override;
  absl::Status Push(uint64_t step, PushRequest push) override;
  void Start(uint64_t step, PullRequest next, uint64_t checkpoint) override;
  absl::Status Wait() override { return context_.client->WaitPull(ticket_); }
  uint64_t checkpoint_seen() const override { return context_.client->checkpoint_seen(); }

 private:
  const JobContext& context_;
  ParameterClient::Ticket ticket_ = 0;
};

// The ranks close the steps: rank 0 broadcasts the step and its checkpoint. A broadcast ends only
// after every rank has begun it, so each rank then knows that all have committed. A rank that is
// lost before that ends the broadcast of the others with an error.
class CollectiveCommit : public StepCommit {
 public:
  // `collective` outlives this.
  explicit CollectiveCommit(Collective* collective) : collective_(collective) {}
  void StartPull(PullRequest) override {}
  absl::Status Push(uint64_t, PushRequest) override { return absl::OkStatus(); }
  void Start(uint64_t step, PullRequest next, uint64_t checkpoint) override;
  absl::Status Wait() override;
  uint64_t checkpoint_seen() const override { return seen_; }

 private:
  struct Commit {
    uint64_t step = 0, checkpoint = 0;
  };
  Collective* const collective_;
  std::optional<Commit> started_;
  uint64_t seen_ = 0;
};

}  // namespace sluice
