// Loads the functions of NCCL that the engine calls when a group first needs them.
//
// NCCL is not linked, because a program linked to it would not start on a machine without it.
//
// Thread safety: safe from any thread.
#pragma once

#include <nccl.h>

#include "absl/status/statusor.h"

namespace sluice {

struct NcclLibrary {
  ncclResult_t (*get_version)(int*);
  ncclResult_t (*get_unique_id)(ncclUniqueId*);
  ncclResult_t (*comm_init)(ncclComm_t*, int, ncclUniqueId, int, ncclConfig_t*);
  ncclResult_t (*comm_async_error)(ncclComm_t, ncclResult_t*);
  ncclResult_t (*comm_finalize)(ncclComm_t);
  ncclResult_t (*comm_destroy)(ncclComm_t);
  ncclResult_t (*comm_abort)(ncclComm_t);
  ncclResult_t (*send)(const void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
  ncclResult_t (*recv)(void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
  ncclResult_t (*all_gather)(const void*, void*, size_t, ncclDataType_t, ncclComm_t, cudaStream_t);
  ncclResult_t (*group_start)();
  ncclResult_t (*group_end)();
  const char* (*error_string)(ncclResult_t);
  const char* (*last_error)(ncclComm_t);

  // Loaded once and kept. NOT_FOUND names the missing library and where it was searched for;
  // FAILED_PRECONDITION: it is too old.
  static absl::StatusOr<const NcclLibrary*> Get();
};

}  // namespace sluice
