// The worker's interface to the pservers: pull, push, commit and exchange.
//
// Frames are delivered exactly once and in order, even when streams break. The client keeps a frame
// until it is acknowledged and sends it again after a reconnect; delivery.h has the rules.
//
// Thread safety: one thread. PushEarly, acknowledged, NoteGeneration, Cancel and WaitingFor are
// safe from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/requests.h"
#include "common/table/table_layout.h"
#include "common/wire/train_position.h"
#include "proto/pserver.pb.h"

namespace sluice {

class ParameterClient {
 public:
  using Limits = ParameterClientLimits;
  using Options = ParameterClientOptions;
  using Ticket = PullTicket;

  // INVALID_ARGUMENT without a transport or a clock; INTERNAL when the route does not fit the
  // tables.
  static absl::StatusOr<std::unique_ptr<ParameterClient>> Create(Options options);
  virtual ~ParameterClient() = default;

  virtual const TableLayouts& tables() const = 0;

  // All calls that wait return:
  // - DEADLINE_EXCEEDED after the timeout, naming pserver and step;
  // - ABORTED when this incarnation is fenced;
  // - INVALID_ARGUMENT when a pserver refused the data.

  // Async and Geo: starts a pull. Its values are those that the pservers hold when they answer.
  virtual Ticket StartPull(PullRequest request) = 0;
  virtual absl::Status WaitPull(Ticket ticket) = 0;
  // As WaitPull, but returns nullopt soon after `stop` has become true. The pull goes on, and the
  // caller waits again, as often as it likes.
  virtual std::optional<absl::Status> WaitPullUnless(Ticket ticket, const std::atomic<bool>& stop) {
    (void)stop;
    return WaitPull(ticket);
  }

  // The caller waits for the pull no more, and may free the arrays that it fills.
  virtual void DropPull(Ticket ticket) { (void)ticket; }

  // Async: starts the push of the next sequence and returns without waiting. A pull `next` goes in
  // the same requests; wait for it with WaitPull(*next_ticket).
  virtual absl::Status StartPush(PushRequest request, PullRequest* next = nullptr,
                                 Ticket* next_ticket = nullptr) = 0;
  // Async: sends the gradient of one dense table before the rest of the push is ready. The next
  // StartPush brings the rest and must not hold this table again. `early` has the weight and task
  // of the whole push. Safe from any thread between two calls of StartPush.
  virtual absl::Status PushEarly(PushRequest early) = 0;
  // Waits until at most `in_flight` pushes are unacknowledged.
  virtual absl::Status WaitPushes(int in_flight) = 0;
  // Returns the newest push that every pserver has acknowledged, with all before it; 0: none. In
  // async pushes are counted from 1 on, in sync it is the number of global steps. Safe from any
  // thread.
  virtual uint64_t acknowledged() const { return 0; }

  // Sync: PushStep pushes global step t (0-based) and waits until every pserver holds it.
  // StartCommit then sends commit(t) together with the pull of step t + 1. If `next` asks for
  // nothing, the ticket completes when t is applied. `checkpoint`, from rank 0 only: not 0 asks
  // every pserver for the cut of this checkpoint after step t. `totals`: of this rank in the epoch,
  // step t included.
  virtual absl::Status PushStep(uint64_t global_step, PushRequest request) = 0;
  virtual Ticket StartCommit(uint64_t global_step, PullRequest next, uint64_t checkpoint = 0,
                             TrainTotals totals = TrainTotals()) = 0;
  // Sync: number of the checkpoint whose cut was made after the last closed step, according to the
  // last WaitPull; 0: none. Right after the wait that follows commit(t), this is step t.
  virtual uint64_t checkpoint_seen() const = 0;

  // Geo: sends the delta. The `values` in `current` receive the pserver's values after the merge;
  // `current` has the same keys as `delta`. Wait for it with WaitPull.
  virtual Ticket StartExchange(PushRequest delta, PullRequest current) = 0;

  // Waits for all pushes and tells the pservers that this rank has ended `epoch`.
  virtual absl::Status EndEpoch(uint32_t epoch) = 0;

  // Makes every pserver write its shards under `directory`, in files named by `save_id`.
  virtual absl::StatusOr<std::vector<SavedFile>> SaveShards(const std::string& directory,
                                                            const std::string& save_id) = 0;

  // The scheduler has published a route of this generation, which the client fetches if it has an
  // older one. A rank that sends nothing would not learn of it from the pservers. Safe from any
  // thread.
  virtual void NoteGeneration(uint64_t generation) = 0;

  // Makes every waiting call, now or later, return CANCELLED soon: the job is over for this worker.
  // Safe from any thread.
  virtual void Cancel() = 0;

  // Describes what a blocked call waits for, for status; "" when none is blocked. Safe from any
  // thread.
  virtual std::string WaitingFor() const = 0;
};

}  // namespace sluice
