// A worker's only way to the pservers: pull, push, commit, exchange; what a Python client will
// wrap.
//
// Frames are delivered exactly once and in order whatever the streams do: they are kept until
// acknowledged and sent again after a reconnect (delivery.h states the rules).
//
// Thread safety: one training thread calls; callbacks of the transport run on their own threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/key_set.h"
#include "common/base/clock.h"
#include "common/table/table_layout.h"
#include "common/transport/transport.h"
#include "proto/pserver.pb.h"
#include "proto/scheduler.pb.h"

namespace sluice {

// What a step reads. Dense tables are pulled whole. Pointers stay valid until the pull has ended.
struct PullRequest {
  struct Sparse {
    uint32_t table;
    std::shared_ptr<const KeySet> keys;
    float* values;  // [keys][dim], filled by the pull
  };
  struct Dense {
    uint32_t table;
    float* values;  // [elements], filled by the pull
  };
  std::vector<Sparse> sparse;
  std::vector<Dense> dense;
  bool evaluation = false;
};

// What a step writes: gradients, or Geo's deltas. Values are shared, not copied: they must not
// change until the frame is acknowledged; `owner` keeps them alive.
struct PushRequest {
  struct Sparse {
    uint32_t table;
    std::shared_ptr<const KeySet> keys;
    const float* values;  // [keys][dim]
  };
  struct Dense {
    uint32_t table;
    const float* values;  // [elements]; null: nothing for this table
  };
  std::vector<Sparse> sparse;
  std::vector<Dense> dense;
  std::shared_ptr<const void> owner;
  double weight = 0;  // n_w
  uint64_t task_id = 0, task_end = 0;
};

class ParameterClient {
 public:
  struct Limits {
    absl::Duration timeout = absl::Seconds(60);  // of any one pull or push
    // A message that must be longer fails the call that waits with INVALID_ARGUMENT, naming the
    // table: no part of a frame and no list of a pull's keys can be cut. 0: no limit.
    uint64_t max_message_bytes = 0;
    // Pushes that are not acknowledged, and tickets that were not waited for; one more is refused
    // with RESOURCE_EXHAUSTED.
    size_t max_frames = 256, max_pulls = 1024;
  };
  struct Options {
    std::string job_id;
    uint64_t instance = 0;  // of the job; a pserver refuses another one
    uint32_t rank = 0;      // of this worker in the job
    uint64_t incarnation = 1;
    TableLayouts tables;  // of the job; the index is the table id
    Route route;          // to begin with
    uint32_t pipeline_depth = 1;
    Limits limits;
    Transport* transport = nullptr;  // outlives the client, as does the clock
    Clock* clock = nullptr;
    // Asked when a pserver answers WRONG_SHARD or another generation. May block. Null: the route
    // never changes.
    std::function<absl::StatusOr<Route>()> get_route;
  };
  using Ticket = uint64_t;

  // INVALID_ARGUMENT without a transport or a clock; INTERNAL when the route does not fit the
  // tables.
  static absl::StatusOr<std::unique_ptr<ParameterClient>> Create(Options options);
  virtual ~ParameterClient() = default;

  virtual const TableLayouts& tables() const = 0;

  // All calls that wait return DEADLINE_EXCEEDED naming pserver and step when the timeout passed,
  // ABORTED when this incarnation is fenced, INVALID_ARGUMENT when a pserver refused the data.

  // Async and Geo: starts a pull; its values are current when it is answered.
  virtual Ticket StartPull(PullRequest request) = 0;
  virtual absl::Status WaitPull(Ticket ticket) = 0;

  // Async: starts the push of the next sequence, to be fused with `next` when given (then also
  // WaitPull on *next_ticket). Returns without waiting.
  virtual absl::Status StartPush(PushRequest request, PullRequest* next = nullptr,
                                 Ticket* next_ticket = nullptr) = 0;
  // Async: dense parts of the next push that are ready before the rest of it: they leave at once,
  // and the next StartPush, which must not hold them again, brings the rest. `early` has one dense
  // table and the weight and task of the whole push. Any thread, between two calls of StartPush.
  virtual absl::Status PushEarly(PushRequest early) = 0;
  // Until at most `in_flight` pushes are not acknowledged.
  virtual absl::Status WaitPushes(int in_flight) = 0;

  // Sync: the push of global step t (0-based), until every pserver holds it; then commit(t) fused
  // with the pull of step t + 1 (`next` may ask for nothing: then it waits until t is applied).
  virtual absl::Status PushStep(uint64_t global_step, PushRequest request) = 0;
  virtual Ticket StartCommit(uint64_t global_step, PullRequest next) = 0;

  // Geo: sends the delta; `values` of the request's tables in `current` receive the server's values
  // after the merge (same keys). Ends with WaitPull.
  virtual Ticket StartExchange(PushRequest delta, PullRequest current) = 0;

  // All pushes are acknowledged and this rank pushes no more in `epoch`.
  virtual absl::Status EndEpoch(uint32_t epoch) = 0;

  // Every pserver writes its shards under `directory`, in files named by `save_id`.
  virtual absl::StatusOr<std::vector<SavedFile>> SaveShards(const std::string& directory,
                                                            const std::string& save_id) = 0;

  // Any thread: every call that waits, now or later, returns CANCELLED soon. The job is over for
  // this worker.
  virtual void Cancel() = 0;

  // What a blocked call waits for, for status ("" when none does). Any thread.
  virtual std::string WaitingFor() const = 0;
};

}  // namespace sluice
