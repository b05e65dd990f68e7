#include "model/net/net_options.h"

#include "absl/strings/str_cat.h"

namespace sluice {
std::string NameOf(const ComputeDevice& device) {
  if (device.kind == ComputeDevice::kCpu) return "cpu";
  return absl::StrCat("cuda:", device.ordinal);
}

absl::StatusOr<MatmulPrecision> ParseMatmulPrecision(absl::string_view text) {
  for (const MatmulPrecision precision :
       {MatmulPrecision::kJob, MatmulPrecision::kF32, MatmulPrecision::kTf32,
        MatmulPrecision::kBf16, MatmulPrecision::kFp16}) {
    if (text == NameOf(precision)) return precision;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown matmul precision \"", text, "\"; use job, f32, tf32, bf16 or fp16"));
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
