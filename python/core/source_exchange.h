// Where the worker's readers and the program's source meet: the one asks for the batches of an
// epoch, the other gives them one by one.
//
// A thread of the program serves the requests. It holds Python's interpreter lock only in the
// user's code, and this class knows nothing of Python.
//
// Invariants:
// - At most one request is open. A newer one closes it, and what is given for it later is dropped.
// - Batches arrive in the order in which they are given. At most kAhead of them wait.
//
// Thread safety: safe from any thread. One thread at a time asks, and one serves.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "proto/config.pb.h"
#include "python/core/given_batch.h"

namespace sluice {

struct SourceRequest {
  enum Kind { kTrain, kEvaluate, kCount };
  uint64_t number = 0;  // from 1; Open sets it
  Kind kind = kTrain;
  uint32_t rank = 0, world_size = 1;
  uint32_t epoch = 0;  // from 0
  uint64_t start = 0;  // the first batch that is wanted; kTrain only
  // Effective: says what the columns of a table are, and how many rows a batch of it has.
  std::shared_ptr<const JobConfig> job;
};

class SourceExchange {
 public:
  using Batch = std::shared_ptr<const GivenBatch>;
  static constexpr size_t kAhead = 2;

  // ---- The worker's threads.

  // Asks for the batches (kTrain, kEvaluate) or their number (kCount). Returns the request's
  // number.
  uint64_t Open(SourceRequest request);
  // Waits for the next batch. Null: there are no more. CANCELLED: `stopped` is true, which is
  // looked at ten times a second, or the request is closed. The error of Fail: the program cannot
  // go on.
  absl::StatusOr<Batch> Next(uint64_t number, const std::function<bool()>& stopped);
  // Waits for the number of batches; 0: the program does not know. Errors as Next.
  absl::StatusOr<uint64_t> Count(uint64_t number, const std::function<bool()>& stopped);
  void Close(uint64_t number);

  // ---- The program's thread.

  // Waits at most `at_most` for a request that it has not returned yet. Nothing: none yet.
  // OUT_OF_RANGE: End or Fail was called.
  absl::StatusOr<std::optional<SourceRequest>> Await(absl::Duration at_most);
  void Counted(uint64_t number, uint64_t batches);
  // Waits until there is room and gives the batch. False: nobody wants more of this request.
  bool Give(uint64_t number, Batch batch);
  // The source has no more batches.
  void EndBatches(uint64_t number);

  // ---- Any thread.

  // The program cannot go on: what waits, and everything later, ends with this error.
  void Fail(absl::Status why);
  // The program needs to serve no more. What waits ends as CANCELLED.
  void End() { Fail(absl::CancelledError("the program has left the job")); }

 private:
  bool IsOpen(uint64_t number) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return failure_.ok() && open_ && request_.number == number;
  }
  // Waits until `ready` or the end of the request. OK: ready.
  absl::Status Wait(uint64_t number, const std::function<bool()>& stopped,
                    const std::function<bool()>& ready) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  CondVar changed_;
  SourceRequest request_ ABSL_GUARDED_BY(mutex_);  // the newest
  bool open_ ABSL_GUARDED_BY(mutex_) = false;      // somebody wants its batches
  uint64_t served_ ABSL_GUARDED_BY(mutex_) = 0;    // the newest that Await has returned
  std::deque<Batch> batches_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;  // there are no more than batches_
  std::optional<uint64_t> count_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
