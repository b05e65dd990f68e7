#include "cli/restart_policy.h"

#include <algorithm>

namespace sluice::cli {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(100);
constexpr absl::Duration kLongestPause = absl::Seconds(5);

}  // namespace

std::optional<absl::Duration> RestartPolicy::Died(absl::Time started, absl::Time now) {
  while (!deaths_.empty() && now - deaths_.front() >= kWindow) deaths_.pop_front();
  deaths_.push_back(now);
  if (deaths_.size() >= kMostDeaths) return std::nullopt;
  if (now - started >= kWindow) pause_ = absl::ZeroDuration();
  pause_ = std::min(std::max(2 * pause_, kFirstPause), kLongestPause);
  return pause_;
}

}  // namespace sluice::cli
