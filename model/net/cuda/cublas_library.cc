#include "model/net/cuda/cublas_library.h"

#include <dlfcn.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"

// The soname has the major version of CUDA, which cuBLAS shares.
#define SLUICE_TEXT_OF_(x) #x
#define SLUICE_TEXT_OF(x) SLUICE_TEXT_OF_(x)
#define SLUICE_CUBLAS_FILE "libcublas.so." SLUICE_TEXT_OF(CUBLAS_VER_MAJOR)

namespace sluice::cuda {
namespace {

// The loader's own search path (LD_LIBRARY_PATH, ld.so.conf), then the toolkit's usual folders.
const std::vector<std::string>& Places() {
  static const auto* places = new std::vector<std::string>{
      SLUICE_CUBLAS_FILE,
      "/usr/local/cuda/lib64/" SLUICE_CUBLAS_FILE,
      "/usr/local/cuda-" SLUICE_TEXT_OF(CUBLAS_VER_MAJOR) "/lib64/" SLUICE_CUBLAS_FILE,
  };
  return *places;
}

absl::StatusOr<void*> Open() {
  std::vector<std::string> errors;
  for (const std::string& place : Places()) {
    // Never closed, since its threads and handles may outlive every use of it here.
    if (void* library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    errors.push_back(dlerror());
  }
  return absl::NotFoundError(
      absl::StrCat("cannot load ", SLUICE_CUBLAS_FILE, ", which computing on a CUDA device needs (",
                   absl::StrJoin(errors, "; "), "); install cuBLAS for CUDA ", CUBLAS_VER_MAJOR,
                   " and add its folder to LD_LIBRARY_PATH"));
}

template <typename F>
absl::Status Find(void* library, const char* name, F* function) {
  *function = reinterpret_cast<F>(dlsym(library, name));
  if (*function != nullptr) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(SLUICE_CUBLAS_FILE, " has no function ", name,
                                          "; install cuBLAS for CUDA ", CUBLAS_VER_MAJOR, ".",
                                          CUBLAS_VER_MINOR));
}

absl::StatusOr<CublasLibrary> Load() {
  SLUICE_ASSIGN_OR_RETURN(void* const library, Open());
  CublasLibrary cublas;
  SLUICE_RETURN_IF_ERROR(Find(library, "cublasCreate_v2", &cublas.create));
  SLUICE_RETURN_IF_ERROR(Find(library, "cublasDestroy_v2", &cublas.destroy));
  SLUICE_RETURN_IF_ERROR(Find(library, "cublasSetStream_v2", &cublas.set_stream));
  SLUICE_RETURN_IF_ERROR(Find(library, "cublasSetWorkspace_v2", &cublas.set_workspace));
  SLUICE_RETURN_IF_ERROR(Find(library, "cublasSetMathMode", &cublas.set_math_mode));
  SLUICE_RETURN_IF_ERROR(Find(library, "cublasGemmEx", &cublas.gemm));
  SLUICE_RETURN_IF_ERROR(Find(library, "cublasGetStatusName", &cublas.status_name));
  return cublas;
}

}  // namespace

const char* CublasFileName() { return SLUICE_CUBLAS_FILE; }

absl::StatusOr<const CublasLibrary*> CublasLibrary::Get() {
  static const auto* library = new absl::StatusOr<CublasLibrary>(Load());
  if (!library->ok()) return library->status();
  return &**library;
}

absl::Status CublasLibrary::Check(cublasStatus_t status, absl::string_view call) const {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  const std::string text = absl::StrCat(call, ": ", status_name(status));
  return status == CUBLAS_STATUS_ALLOC_FAILED ? absl::ResourceExhaustedError(text)
                                              : absl::InternalError(text);
}

}  // namespace sluice::cuda
