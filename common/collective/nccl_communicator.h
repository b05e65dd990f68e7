// A communicator of NCCL whose calls neither block nor outlast a deadline.
//
// NCCL says neither which rank is missing nor that a process of the same host has died: the engine
// finds that out (nccl_engine.h).
//
// Thread safety: one thread at a time, with the device current, except Interrupt.
#pragma once

#include <nccl.h>

#include <atomic>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/collective/nccl_library.h"

namespace sluice {

class NcclCommunicator {
 public:
  explicit NcclCommunicator(const NcclLibrary& nccl) : nccl_(nccl) {}
  // Aborts what is left of it.
  ~NcclCommunicator();

  // Joins the group of the id. Waits for the other ranks.
  absl::Status Create(const ncclUniqueId& id, int ranks, int rank, absl::Duration timeout);
  // Puts calls on a stream as one group. `calls` returns the first result that is neither success
  // nor "in progress".
  absl::Status Group(const std::function<ncclResult_t(const NcclLibrary&, ncclComm_t)>& calls,
                     absl::Duration timeout);
  // Waits until the event was reached. UNAVAILABLE when NCCL reports an error, DEADLINE_EXCEEDED
  // after the timeout, CANCELLED after Interrupt.
  absl::Status Await(cudaEvent_t event, absl::Duration timeout);
  // Ends it in agreement with the other ranks, or else aborts it.
  void Finish(absl::Duration timeout);
  // Stops what the device still does for it.
  void Abort();

  // Makes waits return CANCELLED, until Reset. Safe from any thread.
  void Interrupt() { interrupted_.store(true); }
  void Reset() { interrupted_.store(false); }

 private:
  // Repeats `done` until it returns true.
  absl::Status Poll(const char* what, const std::function<absl::Status(bool*)>& done,
                    absl::Duration timeout);
  // Waits until the last call is complete.
  absl::Status Settle(ncclResult_t result, const char* what, absl::Duration timeout);
  absl::Status Error(ncclResult_t result, const char* what) const;
  absl::Status CheckAsync(const char* what, bool* settled) const;

  const NcclLibrary& nccl_;
  ncclComm_t comm_ = nullptr;
  // Sequentially consistent: rarely written, and read while waiting.
  std::atomic<bool> interrupted_{false};
};

}  // namespace sluice
