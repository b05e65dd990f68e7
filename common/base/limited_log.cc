#include "common/base/limited_log.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/printable.h"

namespace sluice {

void LimitedLog::Say(absl::string_view line) {
  if (!log_) return;
  std::string text = PrintableLine(line.substr(0, kMaxLineBytes));
  if (line.size() > kMaxLineBytes) text += "...";
  uint64_t left_out = 0;
  {
    MutexLock lock(&mutex_);
    const absl::Time now = clock_->Now();
    const absl::Time full_at = std::max(full_at_, now) + limits_.line_every;
    const bool repeated = !limits_.write_repeats && text == last_;
    if (repeated || full_at - now > limits_.burst * limits_.line_every) {
      ++left_out_;
      return;
    }
    full_at_ = full_at;
    last_ = text;
    left_out = std::exchange(left_out_, 0);
  }
  if (left_out > 0) log_(absl::StrCat(left_out, " lines were left out before the next one"));
  log_(text);
}

}  // namespace sluice
