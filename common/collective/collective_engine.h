// The operations of a Collective, one at a time: what an engine implements.
//
// QueuedCollective makes a Collective of it. It describes each operation in a header, and keeps the
// first error, so that an engine need not refuse operations before Join or after an error.
//
// Thread safety: one call at a time, from any thread. Cancel and WaitingFor are safe at any time;
// Abandon is between Join and Leave.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/collective/operation_header.h"

namespace sluice {

struct CollectiveOptions {
  // How long a call waits for another rank that makes no progress. It also bounds how long a
  // stopped rank goes unnoticed, and how much later than the others a rank may begin an operation.
  // two_level: a rank may wait up to 1.5 times as long for a leader that waits itself.
  absl::Duration timeout = absl::Seconds(30);
  // Names the options that set the timeout, for messages; may be empty.
  std::string timeout_options;
  // gloo: a connection is broken when the kernel of the other host has acknowledged nothing for so
  // long. So ranks that cannot reach each other notice it earlier than the timeout, which is for
  // ranks that are slow. nccl: how long an exchange that all ranks have begun may take.
  absl::Duration network_timeout = absl::Seconds(30);
  // shm: the most bytes of an array that are brought, reduced or taken at a time; about half of the
  // L2 cache. The group has shared memory of 4 x ranks x this, which competes with the arrays for
  // the caches. The first rank's value holds for all. It changes no result.
  size_t chunk_bytes = 512 << 10;
  // gloo: the address of this host at which the other hosts reach it. Connections are plain TCP:
  // whoever controls the network between the hosts can read and change what is exchanged. Empty:
  // this rank does not listen, so gloo cannot be used.
  std::string bind_address;
  // Why there is no bind_address and what to do, for messages.
  std::string why_no_address;
  // nccl: the CUDA device of this rank, counted among those that CUDA_VISIBLE_DEVICES allows. -1:
  // none.
  int cuda_device = -1;
  // The number of communicators, 1 to 8: WeightedMeans that were started run on them in turn, so up
  // to this many at a time. Each has memory, connections and a thread of its own. All ranks give
  // the same number. It changes no result.
  uint32_t comm_num = 1;
  // Names the host in place of what the system says, for tests.
  std::string host_for_test;
};

class CollectiveEngine {
 public:
  virtual ~CollectiveEngine() = default;

  // As in Collective. Leave has been called before Listen when there was a group.
  virtual absl::StatusOr<std::string> Listen(uint64_t generation, uint32_t self,
                                             uint32_t ranks) = 0;
  // `peers` as in Collective. `members` are the ranks that form the group, this one among them. The
  // other methods number them from 0 in this order; errors, RankAtFault and WaitingFor name them by
  // their ranks. A card of another rank is not read.
  virtual absl::Status Join(uint64_t generation, const std::vector<std::string>& peers,
                            const std::vector<uint32_t>& members) = 0;
  virtual void Leave() = 0;

  // How long later operations wait, in place of CollectiveOptions::timeout; not less than that.
  virtual void SetTimeout(absl::Duration timeout) = 0;
  // The operations. `header` is what this rank says about it; the engine brings the headers of all
  // ranks together, and the operation fails in all of them unless they agree (CheckAgreement).
  // REQUIRES: `header.n` is the size of the array.
  // A weighted mean, all-reduce or reduce-scatter.
  virtual absl::Status Reduce(const OperationHeader& header, absl::Span<float> values) = 0;
  virtual absl::Status AllGather(const OperationHeader& header, absl::Span<float> values) = 0;
  virtual absl::Status Broadcast(const OperationHeader& header, absl::Span<uint8_t> bytes) = 0;
  virtual absl::Status Barrier(const OperationHeader& header) = 0;

  // Ends the group for all ranks: their operations fail with the code of `why` and its rank at
  // fault. So does an operation that runs; it may not have returned yet.
  virtual void Abandon(const absl::Status& why) = 0;
  virtual void Cancel() = 0;
  virtual std::string WaitingFor() const = 0;
  virtual const char* name() const = 0;
};

}  // namespace sluice
