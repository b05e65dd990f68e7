// Keeps the pulls of one job that wait for their step to close (sync) or for the slowest worker
// (max_staleness).
//
// Thread safety: guarded by the owner's lock.
//
// Memory: at most `per_rank` pulls of each rank, each with the rest of the received message, which
// holds its keys. They have at most `bytes_per_rank` together, or the rank has only one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "common/wire/frame.h"
#include "server/requests/job_view.h"
#include "server/requests/reply_writer.h"

namespace sluice {

// The sender of a request, as its Hello named it.
struct Caller {
  uint32_t rank = 0;
  uint64_t incarnation = 0;
  uint64_t stream = 0;  // unique in the process
};

// Facts about the job that the last message of an answer carries.
struct ReplyStamp {
  uint64_t generation = 0;
  uint64_t others = 0;      // frames of other ranks applied before the values were read
  uint64_t checkpoint = 0;  // whose cut was made after the last closed step; 0: none was
};

struct ParkedPull {
  Caller caller;
  Pull pull;
  PayloadReader payload;
  std::shared_ptr<const JobView> view;
  std::unique_ptr<ReplyWriter> reply;
  absl::Time since;
  uint64_t step = 0;  // StalenessClock::StepOf when the pull came
  ReplyStamp stamp;   // set when the pull is ready
  size_t bytes = 0;   // BytesOf the pull and its payload
};

class ParkedPulls {
 public:
  ParkedPulls(size_t per_rank, size_t bytes_per_rank)
      : per_rank_(per_rank), bytes_per_rank_(bytes_per_rank) {}

  // The memory that a parked pull holds, for its keys and its header.
  static size_t BytesOf(const Pull& pull, const PayloadReader& payload);

  // True when this rank may not park another pull of so many bytes. It never keeps others from
  // parking theirs.
  bool FullFor(uint32_t rank, size_t bytes) const;
  size_t size() const { return pulls_.size(); }

  // Allocates room for the next Park, which then cannot fail and lose the pull.
  void MakeRoom();
  // REQUIRES: !FullFor(pull.caller.rank, pull.bytes).
  void Park(ParkedPull pull) {
    bytes_ += pull.bytes;
    pulls_.push_back(std::move(pull));
  }

  // Removes the pulls that `wanted` accepts and returns them in the order of arrival. `wanted` may
  // be called more than once per pull. If memory runs out, all pulls stay.
  std::vector<ParkedPull> Take(absl::FunctionRef<bool(const ParkedPull&)> wanted);
  std::vector<ParkedPull> TakeAll() {
    bytes_ = 0;
    return std::exchange(pulls_, {});
  }

  // Returns the pull that has waited longest; null when none waits.
  const ParkedPull* oldest() const { return pulls_.empty() ? nullptr : &pulls_.front(); }

 private:
  const size_t per_rank_, bytes_per_rank_;
  std::vector<ParkedPull> pulls_;  // in the order of arrival
  size_t bytes_ = 0;               // of all pulls
};

}  // namespace sluice
