#include "model/net/net_options.h"

#include "absl/strings/str_cat.h"

namespace sluice {

std::string NameOf(const ComputeDevice& device) {
  if (device.kind == ComputeDevice::kCpu) return "cpu";
  return absl::StrCat("cuda:", device.ordinal);
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
