// Fills the shards of a lost pserver from the copies at its follower, to the bit.
//
// Before returning, it has the copies dropped: they lack what this process acknowledges from now
// on, so they must not count as complete (AckGate).
//
// Thread safety: one thread.
//
// Memory: the follower sends at most kSeedAheadBytes ahead.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/transport/transport.h"
#include "server/checkpoints/model_loader.h"
#include "server/requests/job_view.h"

namespace sluice {

class CopyReader {
 public:
  struct Options {
    Transport* transport = nullptr;  // outlives the reader
    PserverAddress follower;
    std::string job_id;
    uint64_t instance = 0;
    std::string pass;                  // of `pserver` (JobPasses)
    uint32_t pserver = 0;              // whose shards they are, as an index in the route
    uint64_t generation = 0;           // of the route that names this process
    LoadProgress* progress = nullptr;  // outlives the reader
  };
  // The shards of `view` are new; it outlives the reader.
  CopyReader(Options options, const JobView& view) : options_(std::move(options)), view_(view) {}

  // Tries again until it has all copies, or progress->Cancel() (CANCELLED): the follower may be
  // unreachable for a moment, and only the scheduler knows when to give the copies up.
  absl::Status Read();

 private:
  struct Attempt;

  // NOT_FOUND: there are no complete copies.
  absl::Status ReadOnce();

  const Options options_;
  const JobView& view_;
  bool has_all_ = false;
};

}  // namespace sluice
