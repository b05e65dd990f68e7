// How figures and the states of jobs are written for people.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstdint>
#include <string>

#include "proto/scheduler.pb.h"

namespace sluice::cli {

std::string WithCommas(uint64_t number);                        // "1,234,567"
std::string Counted(uint64_t number, const std::string& noun);  // "1 epoch", "1,234 epochs"
std::string ByteCount(uint64_t bytes);                          // "1.5 MiB"
std::string ShortDuration(double seconds);                      // "8 s", "3 m 20 s", "2 h 05 m"
const char* StateName(JobState state);                          // "queued", ...

}  // namespace sluice::cli
