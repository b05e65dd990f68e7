// What the ranks of a job's program give each other: sums, broadcasts and barriers (Gather).
//
// Ranks meet at borders: before the first batch, and at the end of each epoch. There they make the
// same calls in the same order. A call is complete when every rank has given to it. What a rank has
// given first stays, so that a repeated call, also by a later life of the rank, gets the same
// reply.
//
// Kept are the calls of the first border, for as long as the job runs, because a rank that takes
// over begins its script there; and those of the newest border. No rank comes back to an earlier
// one: an epoch is over only when all ranks have passed the border at its end, and an attempt that
// repeats epochs makes their calls again.
//
// Memory: at most kMaxCallBytes for each call of all ranks, and kMaxBorderBytes for each border.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/scheduler.pb.h"
#include "proto/state.pb.h"

namespace sluice {

class RankGathers {
 public:
  static constexpr size_t kMaxCallBytes = size_t{1} << 20;     // of all ranks together
  static constexpr size_t kMaxBorderBytes = size_t{16} << 20;  // of all calls of a border
  static constexpr uint32_t kMaxCalls = 64;                    // of a border

  // Takes what request.rank gives. True: the call is over, which it was not before.
  // INVALID_ARGUMENT, here and for all ranks if the call was not complete: the ranks do not make
  // the same call, or it is beyond a bound.
  // REQUIRES: request.rank() < worker_num, the ranks of the present attempt.
  absl::StatusOr<bool> Take(const GatherRequest& request, uint32_t worker_num);
  // What all ranks have given, by rank; null: the call is not complete. Not OK: it never will be.
  absl::StatusOr<const std::vector<std::string>*> Find(const GatherRequest& request) const;
  // The same as a record, with the job of the request.
  // REQUIRES: the call is complete.
  GatherRecord RecordOf(const GatherRequest& request) const;
  // The ranks that have not given to the call, in order.
  // REQUIRES: Take has taken the request.
  std::vector<uint32_t> Missing(const GatherRequest& request) const;
  // The call that the request is of can never be complete, because `rank` has gone on without it.
  // Returns the error that the others get.
  absl::Status LeftBy(uint32_t rank, const GatherRequest& request);

  // Takes back a call that an earlier scheduler has kept.
  void Restore(const GatherRecord& call);
  // Ranks may be others in the next attempt: only what is complete of the first border stays.
  void EndAttempt();
  void Clear() { borders_.clear(); }

 private:
  struct Call {
    uint32_t first = 0;  // the rank that has begun it
    std::string what;
    std::vector<std::optional<std::string>> given;  // by rank, while it is not complete
    std::vector<std::string> complete;              // by rank
    size_t bytes = 0;
    absl::Status failure;
  };
  struct Border {
    std::map<uint32_t, Call> calls;  // by number
    size_t bytes = 0;
  };
  Call* FindCall(const GatherRequest& request);
  const Call* FindCall(const GatherRequest& request) const;

  std::map<uint32_t, Border> borders_;  // by epochs_done
};

}  // namespace sluice
