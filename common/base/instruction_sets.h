// Chooses the instruction set of loops that are compiled once for each.
//
// Code with such loops asks for the set when it runs them, or once before. All loops give the same
// bits on every set.
//
// Thread safety: free functions, safe from any thread, but for UseInstructionSetForTest.
#pragma once

#include <optional>
#include <vector>

namespace sluice {

// In ascending order: a processor that runs one of them runs those before it.
enum class InstructionSet {
  kPortable,  // what every processor of the architecture runs
  kAvx2,      // with FMA
  kAvx512,    // F, DQ, VL and BW
};

// The best set that this processor and operating system run, or what UseInstructionSetForTest says.
InstructionSet BestInstructionSet();

// Whether this processor multiplies bf16 in hardware (AVX512_BF16).
bool HasBf16Instructions();

// All sets that can run here, in ascending order.
std::vector<InstructionSet> SupportedInstructionSetsForTest();
// Makes this one the best for whoever asks from now on; nullopt: the best that can run here.
// REQUIRES: it can run here, and no other thread asks meanwhile.
void UseInstructionSetForTest(std::optional<InstructionSet> set);

}  // namespace sluice
