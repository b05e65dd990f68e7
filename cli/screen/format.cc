#include "cli/screen/format.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sluice::cli {

std::string WithCommas(uint64_t number) {
  std::string text = absl::StrCat(number);
  // From the right, so that earlier commas do not move the places of later ones.
  for (int i = static_cast<int>(text.size()) - 3; i > 0; i -= 3) text.insert(i, ",");
  return text;
}

std::string Counted(uint64_t number, const std::string& noun) {
  return absl::StrCat(WithCommas(number), " ", noun, number == 1 ? "" : "s");
}

std::string ByteCount(uint64_t bytes) {
  if (bytes < 1 << 20) return absl::StrFormat("%.1f KiB", bytes / 1024.0);
  if (bytes < 1u << 30) return absl::StrFormat("%.1f MiB", bytes / 1048576.0);
  return absl::StrFormat("%.1f GiB", bytes / 1073741824.0);
}

std::string ShortDuration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  if (seconds < 10) return absl::StrFormat("%.1f s", seconds);
  // An estimate can be arbitrarily long, and llround must not overflow.
  const auto whole = static_cast<uint64_t>(std::llround(std::min(seconds, 1e15)));
  if (whole < 60) return absl::StrCat(whole, " s");
  if (whole < 3600) return absl::StrFormat("%d m %02d s", whole / 60, whole % 60);
  return absl::StrFormat("%d h %02d m", whole / 3600, whole / 60 % 60);
}

const char* StateName(JobState state) {
  switch (state) {
    case JOB_QUEUED:
      return "queued";
    case JOB_STARTING:
      return "starting";
    case JOB_RUNNING:
      return "running";
    case JOB_DONE:
      return "done";
    case JOB_FAILED:
      return "failed";
    case JOB_CANCELLED:
      return "cancelled";
    case JOB_RECOVERING:
      return "recovering";
    default:
      return "unknown";
  }
}

}  // namespace sluice::cli
