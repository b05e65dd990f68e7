#include "common/optimizer/kernels.h"

#include <atomic>

namespace sluice {
namespace {

std::atomic<const Kernels*> for_test{nullptr};

std::vector<const Kernels*> Supported() {
  std::vector<const Kernels*> supported = {&internal::kPortableKernels};
#ifdef SLUICE_X86_KERNELS
  // The builtin also checks that the operating system saves the registers.
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    supported.push_back(&internal::kAvx2Kernels);
  }
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw")) {
    supported.push_back(&internal::kAvx512Kernels);
  }
#endif
  return supported;
}

}  // namespace

const Kernels& BestKernels() {
  static const Kernels* const best = Supported().back();
  // Relaxed is enough: a test sets the pointer before it creates rules, on the same thread.
  const Kernels* forced = for_test.load(std::memory_order_relaxed);
  return forced != nullptr ? *forced : *best;
}

std::vector<const Kernels*> SupportedKernelsForTest() { return Supported(); }

void UseKernelsForTest(const Kernels* kernels) {
  for_test.store(kernels, std::memory_order_relaxed);
}

}  // namespace sluice
