#include "scheduler/caller_log.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/printable.h"

namespace sluice {

void CallerLog::Say(absl::string_view line) {
  std::string text = PrintableLine(line.substr(0, kMaxLineBytes));
  if (line.size() > kMaxLineBytes) text += "...";
  uint64_t left_out = 0;
  {
    MutexLock lock(&mutex_);
    const absl::Time now = clock_->Now();
    const absl::Time full_at = std::max(full_at_, now) + kLineEvery;
    if (text == last_ || full_at - now > kBurst * kLineEvery) {
      ++left_out_;
      return;
    }
    full_at_ = full_at;
    last_ = text;
    left_out = std::exchange(left_out_, 0);
  }
  if (left_out > 0) log_(absl::StrCat(left_out, " lines of callers were left out"));
  log_(text);
}

}  // namespace sluice
