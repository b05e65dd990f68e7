#include "common/collective/nccl_library.h"

#include <dlfcn.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

constexpr char kFile[] = "libnccl.so.2";
// The first version whose communicators all report through ncclCommGetAsyncError.
constexpr int kOldest = NCCL_VERSION(2, 18, 1);

absl::StatusOr<void*> Open() {
  // The loader's own search path (LD_LIBRARY_PATH, ld.so.conf), then the toolkit's usual folder.
  const std::vector<std::string> places = {kFile, absl::StrCat("/usr/local/cuda/lib64/", kFile)};
  std::vector<std::string> errors;
  for (const std::string& place : places) {
    // Never closed, since its threads may outlive every use of it here.
    if (void* library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    errors.push_back(dlerror());
  }
  return absl::NotFoundError(absl::StrCat(
      "cannot load ", kFile, ", which the engine nccl needs (", absl::StrJoin(errors, "; "),
      "); install NCCL 2 and add its folder to LD_LIBRARY_PATH, or choose another engine"));
}

template <typename F>
absl::Status Find(void* library, const char* name, F* function) {
  *function = reinterpret_cast<F>(dlsym(library, name));
  if (*function != nullptr) return absl::OkStatus();
  return absl::NotFoundError(
      absl::StrCat(kFile, " has no function ", name, "; install NCCL 2.18 or newer"));
}

absl::StatusOr<NcclLibrary> Load() {
  SLUICE_ASSIGN_OR_RETURN(void* const library, Open());
  NcclLibrary nccl;
  SLUICE_RETURN_IF_ERROR(Find(library, "ncclGetVersion", &nccl.get_version));
  SLUICE_RETURN_IF_ERROR(Find(library, "ncclGetUniqueId", &nccl.get_unique_id));
  SLUICE_RETURN_IF_ERROR(Find(library, "ncclCommInitRankConfig", &nccl.comm_init));
  SLUICE_RETURN_IF_ERROR(Find(library, "ncclCommGetAsyncError", &nccl.comm_async_error));
  SLUICE_RETURN_IF_ERROR(Find(library, "ncclCommFinalize", &nccl.comm_finalize));
  SLUICE_RETURN_IF_ERROR(Find(library, "ncclCommDestroy", &nccl.comm_destroy));
  SLUICE_RETURN_IF_ERROR(Find(library, "ncclCommAbort", &nccl.comm_abort));
  SLUICE_RETURN_IF_ERROR(Find(library, "ncclSend", &nccl.send));
  SLUICE_RETURN_IF_ERROR(Find(library, "ncclRecv", &nccl.recv));
  SLUICE_RETURN_IF_ERROR(Find(library, "ncclAllGather", &nccl.all_gather));
  SLUICE_RETURN_IF_ERROR(Find(library, "ncclGroupStart", &nccl.group_start));
  SLUICE_RETURN_IF_ERROR(Find(library, "ncclGroupEnd", &nccl.group_end));
  SLUICE_RETURN_IF_ERROR(Find(library, "ncclGetErrorString", &nccl.error_string));
  SLUICE_RETURN_IF_ERROR(Find(library, "ncclGetLastError", &nccl.last_error));
  int version = 0;
  if (nccl.get_version(&version) != ncclSuccess || version < kOldest) {
    return absl::FailedPreconditionError(absl::StrCat(
        kFile, " has version ", version, "; install NCCL 2.18 or newer (", kOldest, ")"));
  }
  return nccl;
}

}  // namespace

absl::StatusOr<const NcclLibrary*> NcclLibrary::Get() {
  static const auto* library = new absl::StatusOr<NcclLibrary>(Load());
  if (!library->ok()) return library->status();
  return &**library;
}

}  // namespace sluice
