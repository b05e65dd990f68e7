#include "common/config/data_day.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/civil_time.h"

namespace sluice {
namespace {

constexpr absl::CivilDay kFirstDay(1970, 1, 1);

// YYYY-MM-DD, which absl also reads with other widths and signs.
bool LooksLikeADay(absl::string_view text) {
  if (text.size() != 10) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool dash = i == 4 || i == 7;
    if (dash ? text[i] != '-' : !absl::ascii_isdigit(static_cast<unsigned char>(text[i])))
      return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<int32_t> ParseDataDay(absl::string_view text) {
  absl::CivilDay day;
  // absl refuses a day that does not exist, such as February 30, instead of taking another one.
  if (!LooksLikeADay(text) || !absl::ParseCivilTime(text, &day) || day < kFirstDay) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", text, "' is not a day since 1970-01-01; write it as YYYY-MM-DD, such as 2026-11-30"));
  }
  return static_cast<int32_t>(day - kFirstDay);
}

std::string FormatDataDay(int32_t day) { return absl::FormatCivilTime(kFirstDay + day); }

std::string DayInPaths(const DataConfig& data) {
  std::string found;
  for (const std::string& path : data.train_files()) {
    for (absl::string_view part : absl::StrSplit(path, '/')) {
      if (!absl::ConsumePrefix(&part, "day=")) continue;
      if (!ParseDataDay(part).ok() || (!found.empty() && found != part)) return "";
      found = std::string(part);
    }
  }
  return found;
}

bool NeedsDataDay(const JobConfig& job) {
  return std::any_of(job.tables().begin(), job.tables().end(), [](const TableConfig& table) {
    return table.expire().after_days() > 0 || table.evict().half_life_days() > 0;
  });
}

}  // namespace sluice
