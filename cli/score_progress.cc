#include "cli/score_progress.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "cli/format.h"

namespace sluice::cli {

ScoreProgress::ScoreProgress(ProgressMode mode, Clock* clock, std::ostream* out)
    : mode_(mode), clock_(clock), out_(*out), began_(clock->Now()), printed_(began_) {}

std::string ScoreProgress::Text(uint64_t lines) const {
  const double seconds = absl::ToDoubleSeconds(clock_->Now() - began_);
  const double rate = seconds > 0 ? static_cast<double>(lines) / seconds : 0;
  return absl::StrCat("scored ", Counted(lines, "line"), ", ",
                      WithCommas(static_cast<uint64_t>(rate)), " lines/s");
}

void ScoreProgress::Update(uint64_t lines) {
  const absl::Time now = clock_->Now();
  const bool live = mode_ == ProgressMode::kLive;
  if (now - printed_ < (live ? kLiveEvery : kPlainEvery)) return;
  printed_ = now;
  const std::string text = Text(lines);
  if (!live) {
    out_ << text << std::endl;
    return;
  }
  // Blanks overwrite the rest of a longer line.
  const size_t blanks = shown_ > text.size() ? shown_ - text.size() : 0;
  out_ << '\r' << text << std::string(blanks, ' ') << std::flush;
  shown_ = text.size();
}

void ScoreProgress::Clear() {
  if (shown_ == 0) return;
  out_ << '\r' << std::string(shown_, ' ') << '\r' << std::flush;
  shown_ = 0;
}

}  // namespace sluice::cli
