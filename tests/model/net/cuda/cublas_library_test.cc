// Checks that cuBLAS loads with all functions that are called, or that the error names what is
// missing. Needs no GPU.
#include "model/net/cuda/cublas_library.h"

#include "gmock/gmock.h"

namespace sluice::cuda {
namespace {

using ::testing::HasSubstr;

TEST(CublasLibraryTest, LoadsAllFunctionsOrNamesTheMissingLibrary) {
  const auto cublas = CublasLibrary::Get();
  if (!cublas.ok()) {
    EXPECT_EQ(cublas.status().code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(std::string(cublas.status().message()), HasSubstr(CublasFileName()));
    GTEST_SKIP() << cublas.status();
  }
  const absl::Status status = (*cublas)->Check(CUBLAS_STATUS_NOT_INITIALIZED, "cublasCreate");
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(std::string(status.message()), "cublasCreate: CUBLAS_STATUS_NOT_INITIALIZED");
  EXPECT_TRUE((*cublas)->Check(CUBLAS_STATUS_SUCCESS, "cublasCreate").ok());
}

}  // namespace
}  // namespace sluice::cuda
