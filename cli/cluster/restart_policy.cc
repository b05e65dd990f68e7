#include "cli/cluster/restart_policy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace sluice::cli {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(100);
constexpr absl::Duration kLongestPause = absl::Seconds(5);

}  // namespace

std::optional<absl::Duration> RestartPolicy::Died(absl::Time started, absl::Time now,
                                                  bool failed_start) {
  failed_starts_ = failed_start ? failed_starts_ + 1 : 0;
  while (!deaths_.empty() && now - deaths_.front() >= kWindow) deaths_.pop_front();
  deaths_.push_back(now);
  // A process that dies this often fails for a reason that another start does not mend, such as a
  // damaged file. Its log must stay short enough to show that reason.
  if (deaths_.size() >= kMostDeaths || failed_starts_ >= kMostFailedStarts) return std::nullopt;
  // A long life shows that the process can run here, so the next start comes after a short pause.
  if (now - started >= kWindow) pause_ = absl::ZeroDuration();
  pause_ = std::min(std::max(2 * pause_, kFirstPause), kLongestPause);
  return pause_;
}

std::string RestartPolicy::WhyNotAgain() const {
  if (failed_starts_ >= kMostFailedStarts)
    return absl::StrCat("start number ", failed_starts_, " in a row that failed");
  return absl::StrCat("its death number ", deaths_.size(), " within a minute");
}

}  // namespace sluice::cli
