#include "common/collective/nccl_communicator.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/cuda/cuda_status.h"

namespace sluice {

NcclCommunicator::~NcclCommunicator() { Abort(); }

absl::Status NcclCommunicator::Error(ncclResult_t result, const char* what) const {
  const char* const more = comm_ == nullptr ? nullptr : nccl_.last_error(comm_);
  const std::string text =
      absl::StrCat(what, ": NCCL says: ", nccl_.error_string(result),
                   more == nullptr || *more == '\0' ? "" : ": ", more == nullptr ? "" : more);
  switch (result) {
    // These come from the network or from another rank: the engine then asks who is missing
    // (Blame).
    case ncclSystemError:
    case ncclRemoteError:
      return absl::UnavailableError(text);
    case ncclInvalidArgument:
    case ncclInvalidUsage:
      return absl::FailedPreconditionError(
          absl::StrCat(text, "; each worker needs a GPU of its own"));
    default:
      return absl::InternalError(text);
  }
}

absl::Status NcclCommunicator::Poll(const char* what,
                                    const std::function<absl::Status(bool*)>& done,
                                    absl::Duration timeout) {
  // Most operations take tens of microseconds; longer ones do not need to be noticed so soon.
  constexpr int kYields = 200;
  constexpr std::chrono::microseconds kLongest(500);
  const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(timeout);
  std::chrono::microseconds pause(10);
  for (int i = 0;; ++i) {
    bool is_done = false;
    SLUICE_RETURN_IF_ERROR(done(&is_done));
    if (is_done) return absl::OkStatus();
    if (interrupted_.load()) return absl::CancelledError(absl::StrCat(what, " was cancelled"));
    if (std::chrono::steady_clock::now() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat(what, " made no progress within ", absl::FormatDuration(timeout)));
    }
    if (i < kYields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, kLongest);
    }
  }
}

absl::Status NcclCommunicator::CheckAsync(const char* what, bool* settled) const {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = nccl_.comm_async_error(comm_, &state);
  if (asked != ncclSuccess) return Error(asked, what);
  *settled = state == ncclSuccess;
  return state == ncclSuccess || state == ncclInProgress ? absl::OkStatus() : Error(state, what);
}

absl::Status NcclCommunicator::Settle(ncclResult_t result, const char* what,
                                      absl::Duration timeout) {
  if (result != ncclSuccess && result != ncclInProgress) return Error(result, what);
  return Poll(
      what, [&](bool* settled) { return CheckAsync(what, settled); }, timeout);
}

absl::Status NcclCommunicator::Create(const ncclUniqueId& id, int ranks, int rank,
                                      absl::Duration timeout) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  // Calls return ncclInProgress instead of waiting for other ranks, so that a deadline can end
  // them.
  config.blocking = 0;
  const char* const what = "joining the NCCL group";
  const ncclResult_t result = nccl_.comm_init(&comm_, ranks, id, rank, &config);
  if (comm_ == nullptr) return Error(result, what);
  return Settle(result, what, timeout);
}

absl::Status NcclCommunicator::Group(
    const std::function<ncclResult_t(const NcclLibrary&, ncclComm_t)>& calls,
    absl::Duration timeout) {
  const char* const what = "starting an exchange";
  ncclResult_t result = nccl_.group_start();
  if (result != ncclSuccess) return Error(result, what);
  const ncclResult_t inside = calls(nccl_, comm_);
  // Also after an error inside: a group that is not ended would swallow all later calls of the
  // thread.
  result = nccl_.group_end();
  if (inside != ncclSuccess && inside != ncclInProgress) return Error(inside, what);
  return Settle(result, what, timeout);
}

absl::Status NcclCommunicator::Await(cudaEvent_t event, absl::Duration timeout) {
  const char* const what = "an exchange between GPUs";
  return Poll(
      what,
      [&](bool* reached) -> absl::Status {
        bool settled = false;
        // The event of a broken exchange never comes; NCCL's own state says that it is broken.
        SLUICE_RETURN_IF_ERROR(CheckAsync(what, &settled));
        const cudaError_t state = cudaEventQuery(event);
        *reached = state == cudaSuccess;
        if (state == cudaErrorNotReady) {
          (void)cudaGetLastError();
          return absl::OkStatus();
        }
        return cuda::CudaStatus(state, "cudaEventQuery");
      },
      timeout);
}

void NcclCommunicator::Finish(absl::Duration timeout) {
  if (comm_ == nullptr) return;
  if (Settle(nccl_.comm_finalize(comm_), "leaving the NCCL group", timeout).ok()) {
    (void)nccl_.comm_destroy(comm_);
    comm_ = nullptr;
  }
  Abort();
}

void NcclCommunicator::Abort() {
  if (comm_ != nullptr) (void)nccl_.comm_abort(comm_);
  comm_ = nullptr;
}

}  // namespace sluice
