// Says which lines of a long series are written: each of the first 100, then one in 10 seconds.
//
// So the begin of a job is shown in full, and a job of months neither fills a disk nor hides other
// lines.
//
// Thread safety: one thread.
#pragma once

#include <chrono>
#include <cstdint>

namespace sluice {

class LinePace {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr uint64_t kFirst = 100;
  static constexpr std::chrono::seconds kEvery{10};

  // Returns true when the line that comes at `now` is to be written.
  bool Take(Time now) {
    if (taken_ >= kFirst && now - last_ < kEvery) return false;
    ++taken_;
    last_ = now;
    return true;
  }

 private:
  uint64_t taken_ = 0;
  Time last_;
};

}  // namespace sluice
