#include "cli/screen/table_stats_text.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/civil_time.h"
#include "cli/screen/format.h"
#include "cli/screen/wrap.h"
#include "common/base/printable.h"

namespace sluice::cli {
namespace {

constexpr size_t kColumns = 80;
constexpr double kBarColumns = 15;

std::string DayText(int32_t day) { return absl::FormatCivilTime(absl::CivilDay(1970, 1, 1) + day); }

// "2-3", or of figures that are no whole numbers "0.25-0.5".
std::string BucketText(const PowerHistogram::Bucket& bucket, bool whole) {
  if (bucket.below == 0) return "0";
  if (!whole) return absl::StrFormat("%.3g-%.3g", bucket.from, bucket.below);
  const auto from = static_cast<uint64_t>(bucket.from);
  const uint64_t last = from + (from - 1);
  return from == last ? WithCommas(from) : absl::StrCat(WithCommas(from), "-", WithCommas(last));
}

void AppendHistogram(const std::string& title, const PowerHistogram& histogram, bool whole,
                     std::string* text) {
  const std::vector<PowerHistogram::Bucket> buckets = histogram.Buckets();
  if (buckets.empty()) return;
  absl::StrAppendFormat(text, "\n  %-26s %14s %7s %7s\n", title, "rows", "share", "sum");
  const auto all = static_cast<double>(histogram.rows());
  uint64_t most = 0, sum = 0;
  for (const auto& bucket : buckets) most = std::max(most, bucket.rows);
  for (const auto& bucket : buckets) {
    sum += bucket.rows;
    const double rows = static_cast<double>(bucket.rows);
    const auto bar = static_cast<size_t>(rows / static_cast<double>(most) * kBarColumns);
    absl::StrAppendFormat(text, "  %-26s %14s %6.1f%% %6.1f%%%s\n", BucketText(bucket, whole),
                          WithCommas(bucket.rows), 100 * rows / all,
                          100 * static_cast<double>(sum) / all,
                          bar == 0 ? "" : "  " + std::string(bar, '#'));
  }
}

std::string TurnoverText(const TableStats& table) {
  std::vector<std::string> parts;
  const RowTurnover& turnover = table.turnover;
  for (const auto& [rows, what] : std::initializer_list<std::pair<uint64_t, const char*>>{
           {turnover.admitted(), "admitted"},
           {turnover.refused(), "updates refused"},
           {turnover.expired(), "expired"},
           {turnover.evicted(), "evicted"},
           {turnover.deleted(), "deleted"}}) {
    if (rows > 0) parts.push_back(absl::StrCat(WithCommas(rows), " ", what));
  }
  return absl::StrJoin(parts, ", ");
}

void AppendLine(const std::string& line, std::string* text) {
  absl::StrAppend(text, Wrapped(line, kColumns), "\n");
}

void AppendTable(const TableStats& table, bool checkpoint, std::string* text) {
  AppendLine(absl::StrCat("table ", table.name, ": ", Counted(table.rows, "row"), " of ",
                          Counted(table.dim, "weight"),
                          checkpoint ? absl::StrCat(" and ", Counted(table.state_floats, "float"),
                                                    " of state")
                                     : "",
                          ", ", ByteCount(table.bytes), " in ", Counted(table.shards, "file")),
             text);
  if (table.expired > 0) {
    AppendLine(absl::StrCat("  ", Counted(table.expired, "more row"),
                            " expired: jobs read them as missing; they are not counted below"),
               text);
  }
  if (const std::string turnover = TurnoverText(table); !turnover.empty())
    AppendLine(absl::StrCat("  since the table began: ", turnover), text);
  AppendHistogram("updates of a row", table.count, /*whole=*/true, text);
  AppendHistogram("norm of its weights", table.norm, /*whole=*/false, text);
  AppendHistogram(absl::StrCat("age in steps (at ", WithCommas(table.schedule_steps), ")"),
                  table.age_steps, /*whole=*/true, text);
  if (table.today) {
    AppendHistogram(absl::StrCat("age in days (", DayText(*table.today), ")"), table.age_days,
                    /*whole=*/true, text);
  }
}

std::string HistogramJson(const PowerHistogram& histogram) {
  return absl::StrCat("[",
                      absl::StrJoin(histogram.Buckets(), ", ",
                                    [](std::string* out, const PowerHistogram::Bucket& bucket) {
                                      absl::StrAppendFormat(
                                          out, "{\"from\": %.17g, \"below\": %.17g, \"rows\": %d}",
                                          bucket.from, bucket.below, bucket.rows);
                                    }),
                      "]");
}

std::string TableJson(const TableStats& table, bool checkpoint) {
  std::string json = absl::StrFormat(
      "{\"name\": %s, \"rows\": %d, \"bytes\": %d, \"files\": %d, \"weights\": %d, \"norm\": %s, "
      "\"greatest_norm\": %.17g",
      JsonQuoted(table.name), table.rows, table.bytes, table.shards, table.dim,
      HistogramJson(table.norm), table.norm.greatest());
  if (!checkpoint) return json + "}";
  const RowTurnover& turnover = table.turnover;
  absl::StrAppendFormat(
      &json,
      ", \"state_floats\": %d, \"expired\": %d, \"schedule_steps\": %d, \"tombstones\": %d, "
      "\"turnover\": {\"admitted\": %d, \"refused\": %d, \"expired\": %d, \"evicted\": %d, "
      "\"deleted\": %d}, \"count\": %s, \"age_steps\": %s",
      table.state_floats, table.expired, table.schedule_steps, table.tombstones,
      turnover.admitted(), turnover.refused(), turnover.expired(), turnover.evicted(),
      turnover.deleted(), HistogramJson(table.count), HistogramJson(table.age_steps));
  if (table.today) {
    absl::StrAppend(&json, ", \"day\": \"", DayText(*table.today),
                    "\", \"age_days\": ", HistogramJson(table.age_days));
  }
  return json + "}";
}

}  // namespace

std::string TableStatsText(const std::string& folder, const FolderStats& stats) {
  std::string text;
  for (const TableStats& table : stats.tables) {
    if (!text.empty()) text += "\n";
    AppendTable(table, stats.checkpoint, &text);
  }
  if (!stats.checkpoint) {
    text += "\n";
    AppendLine(absl::StrCat(folder,
                            " is a model, which has no counts and ages of rows; a checkpoint (a "
                            "folder step-N) has them"),
               &text);
  }
  return text;
}

std::string TableStatsJson(const std::string& folder, const FolderStats& stats) {
  std::vector<std::string> tables;
  for (const TableStats& table : stats.tables) tables.push_back(TableJson(table, stats.checkpoint));
  return absl::StrFormat(
      "{\"folder\": %s, \"checkpoint\": %s, \"global_step\": %d, \"tables\": [%s]}\n",
      JsonQuoted(folder), stats.checkpoint ? "true" : "false", stats.global_step,
      absl::StrJoin(tables, ", "));
}

}  // namespace sluice::cli
