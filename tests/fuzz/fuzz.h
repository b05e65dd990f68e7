// What the fuzzers share.
//
// A fuzzer is one .cc file with LLVMFuzzerTestOneInput, which libFuzzer calls with one input after
// another. It crashes when the product breaks a promise: FUZZ_CHECK, a sanitizer, a time limit or
// a memory limit. tests/README.md says how to add one.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "fuzzer/FuzzedDataProvider.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

// Ends the process when the condition is false, in every build.
#define FUZZ_CHECK(condition)                                                                 \
  do {                                                                                        \
    if (!(condition)) {                                                                       \
      std::fprintf(stderr, "%s:%d: FUZZ_CHECK failed: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                           \
    }                                                                                         \
  } while (false)
