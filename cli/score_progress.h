// How many lines were scored, and how fast, while they are: one live line on a terminal, a plain
// line from time to time otherwise.
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

  // `clock` and `out` outlive the progress.
  ScoreProgress(ProgressMode mode, Clock* clock, std::ostream* out);
  ~ScoreProgress() { Clear(); }

  // Prints when it is time to.
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
