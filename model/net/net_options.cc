#include "model/net/net_options.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

constexpr char kCudaPrefix[] = "cuda:";

}  // namespace

absl::StatusOr<ComputeDevice> ParseComputeDevice(absl::string_view text) {
  ComputeDevice device;
  if (text == "cpu") return device;
  device.kind = ComputeDevice::kCuda;
  if (absl::StartsWith(text, kCudaPrefix) &&
      absl::SimpleAtoi(text.substr(sizeof kCudaPrefix - 1), &device.ordinal) &&
      device.ordinal >= 0) {
    return device;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("device \"", text, "\" is not known; use cpu or cuda:N, e.g. cuda:0"));
}

std::string NameOf(const ComputeDevice& device) {
  if (device.kind == ComputeDevice::kCpu) return "cpu";
  return absl::StrCat(kCudaPrefix, device.ordinal);
}

absl::StatusOr<MatmulPrecision> ParseMatmulPrecision(absl::string_view text) {
  for (const MatmulPrecision precision :
       {MatmulPrecision::kJob, MatmulPrecision::kF32, MatmulPrecision::kTf32,
        MatmulPrecision::kBf16, MatmulPrecision::kFp16}) {
    if (text == NameOf(precision)) return precision;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "matmul precision \"", text, "\" is not known; use job, f32, tf32, bf16 or fp16"));
}

const char* NameOf(MatmulPrecision precision) {
  switch (precision) {
    case MatmulPrecision::kJob:
      return "job";
    case MatmulPrecision::kF32:
      return "f32";
    case MatmulPrecision::kTf32:
      return "tf32";
    case MatmulPrecision::kBf16:
      return "bf16";
    case MatmulPrecision::kFp16:
      return "fp16";
  }
  return "?";
}

}  // namespace sluice
