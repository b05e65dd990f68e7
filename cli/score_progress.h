// Shows how many lines have been scored and how fast: one live line on a terminal, otherwise a
// plain line every 10 seconds.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <ostream>

#include "absl/time/time.h"
#include "cli/progress.h"
#include "common/base/clock.h"

namespace sluice::cli {

class ScoreProgress {
 public:
  static constexpr absl::Duration kLiveEvery = absl::Milliseconds(500);
  static constexpr absl::Duration kPlainEvery = absl::Seconds(10);

  // `clock` and `out` must outlive this object.
  ScoreProgress(ProgressMode mode, Clock* clock, std::ostream* out);
  ~ScoreProgress() { Clear(); }

  // Prints when the interval since the last print has passed.
  void Update(uint64_t lines);
  // Removes the live line.
  void Clear();
  // "scored 1,200 lines, 600 lines/s"
  std::string Text(uint64_t lines) const;

 private:
  const ProgressMode mode_;
  Clock* const clock_;
  std::ostream& out_;
  const absl::Time began_;
  absl::Time printed_;
  size_t shown_ = 0;  // characters of the live line
};

}  // namespace sluice::cli
