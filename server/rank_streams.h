// Bounds the open streams of each rank of a job: a new one closes the oldest.
//
// A worker has one stream to each pserver, and for a moment two, when it connects again before the
// pserver has noticed the end of the earlier one. So a worker is never locked out by its own
// streams, and whoever has the pass of one rank cannot take the streams of all.
//
// Thread safety: safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "common/base/mutex.h"
#include "common/transport/transport.h"

namespace sluice {

class RankStreams {
 public:
  static constexpr size_t kMaxPerRank = 4;

  struct Rank {
    std::string job_id;
    uint64_t instance = 0;
    uint32_t rank = 0;

    bool operator<(const Rank& other) const {
      return std::tie(job_id, instance, rank) < std::tie(other.job_id, other.instance, other.rank);
    }
  };

  // The rank has opened a stream. Returns the stream that the caller must close, without a lock;
  // null when there is room. `number`: of the stream; later streams have greater ones.
  std::shared_ptr<Stream> Open(const Rank& rank, uint64_t number, std::shared_ptr<Stream> stream);
  // The stream has ended. Streams that are not open are ignored.
  void Ended(const Rank& rank, uint64_t number);

 private:
  Mutex mutex_;
  std::map<Rank, std::map<uint64_t, std::shared_ptr<Stream>>> open_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
