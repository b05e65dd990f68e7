#include "common/base/instruction_sets.h"

#include <atomic>

namespace sluice {
namespace {

InstructionSet Best() {
#ifdef __x86_64__
  // The builtin also checks that the operating system saves the registers.
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
    return InstructionSet::kPortable;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw")) {
    return InstructionSet::kAvx512;
  }
  return InstructionSet::kAvx2;
#else
  return InstructionSet::kPortable;
#endif
}

// The set in use. Relaxed is enough: a test sets it while no other thread uses it.
std::atomic<InstructionSet>& InUse() {
  static std::atomic<InstructionSet> in_use{Best()};
  return in_use;
}

}  // namespace

InstructionSet BestInstructionSet() { return InUse().load(std::memory_order_relaxed); }

bool HasBf16Instructions() {
#ifdef __x86_64__
  return __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

std::vector<InstructionSet> SupportedInstructionSetsForTest() {
  std::vector<InstructionSet> sets;
  for (int set = 0; set <= static_cast<int>(Best()); ++set)
    sets.push_back(static_cast<InstructionSet>(set));
  return sets;
}

void UseInstructionSetForTest(std::optional<InstructionSet> set) {
  InUse().store(set.value_or(Best()), std::memory_order_relaxed);
}

}  // namespace sluice
