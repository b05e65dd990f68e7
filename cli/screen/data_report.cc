#include "cli/screen/data_report.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "cli/screen/format.h"
#include "cli/screen/wrap.h"
#include "common/base/printable.h"
#include "common/config/data_format.h"

namespace sluice::cli {
namespace {

constexpr size_t kScreenWidth = 80;
constexpr size_t kShownColumns = 200;  // rows of the table of columns
constexpr size_t kNameWidth = 18, kTypeWidth = 15, kDistinctWidth = 11;

std::string Share(uint64_t part, uint64_t all) {
  if (part == 0) return "0 %";
  const double percent = 100 * static_cast<double>(part) / static_cast<double>(all);
  return percent < 0.1 ? "<0.1 %" : absl::StrFormat("%.1f %%", percent);
}

bool HoldsNumbers(const ColumnProfile& column) {
  return column.kind() == ColumnKind::kInteger || column.kind() == ColumnKind::kNumber;
}

// Parquet may have dates that are not read, such as those of years above 9999.
bool HoldsDates(const ColumnProfile& column) {
  return column.kind() == ColumnKind::kDate && column.earliest() <= column.latest();
}

// The first bytes of a text, on one line.
std::string Short(const std::string& text, size_t width) {
  const std::string line = PrintableLine(text);
  if (line.size() <= width) return line;
  size_t end = width - 3;
  // Not within a character.
  while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xC0) == 0x80) --end;
  return line.substr(0, end) + "...";
}

std::string QuotedText(const std::string& text) {
  return absl::StrCat("\"", absl::CHexEscape(text), "\"");
}

std::string FormatText(const TextShape& shape) {
  const CsvFormat& csv = shape.data.csv();
  std::string text = DataConfig::Format_Name(shape.data.format());
  if (!csv.delimiter().empty()) absl::StrAppend(&text, ", delimiter ", QuotedText(csv.delimiter()));
  if (FormatOf(shape.data).delimited)
    absl::StrAppend(&text, csv.header() ? ", with a header line" : ", without a header line");
  if (csv.has_quote())
    absl::StrAppend(&text, csv.quote().empty() ? ", quotes are text"
                                               : ", quoted by " + QuotedText(csv.quote()));
  if (!csv.escape().empty()) absl::StrAppend(&text, ", escapes by ", QuotedText(csv.escape()));
  if (csv.merge_delimiters()) absl::StrAppend(&text, ", several delimiters count as one");
  if (!csv.comment_prefix().empty())
    absl::StrAppend(&text, ", comments begin with ", QuotedText(csv.comment_prefix()));
  if (csv.decimal_mark() == ",") absl::StrAppend(&text, ", decimal comma");
  return text;
}

std::string TypeText(const ColumnProfile& column) {
  if (column.kind() == ColumnKind::kDate)
    return column.date_format().empty() ? "date" : absl::StrCat("date ", column.date_format());
  if (column.kind() == ColumnKind::kSeveralValues && column.parts_delimiter().empty())
    return "lists";
  if (column.kind() == ColumnKind::kSeveralValues)
    return absl::StrCat("values by ", QuotedText(column.parts_delimiter()));
  return KindName(column.kind());
}

std::string TimeText(const char* format, int64_t seconds) {
  return absl::FormatTime(format, absl::FromUnixSeconds(seconds), absl::UTCTimeZone());
}

// The days of a column of dates, or the times of its only day.
std::string DatesText(const ColumnProfile& column) {
  const std::string first = TimeText("%Y-%m-%d", column.earliest()),
                    last = TimeText("%Y-%m-%d", column.latest());
  if (first != last) return absl::StrCat(first, "..", last);
  if (!column.date_has_time()) return first;
  return absl::StrCat(first, TimeText(" %H:%M-", column.earliest()),
                      TimeText("%H:%M", column.latest()));
}

// Describes the content of a column in a few words.
std::string HoldsText(const ColumnProfile& column, size_t width) {
  std::string text;
  if (HoldsNumbers(column) && column.numbers().count() > 0) {
    const std::vector<double> q = column.numbers().Quantiles({0, 0.5, 1});
    text = absl::StrFormat("%.6g .. %.6g, median %.6g", q[0], q[2], q[1]);
  } else if (HoldsDates(column)) {
    text = DatesText(column);
  } else if (column.kind() == ColumnKind::kSeveralValues) {
    text = absl::StrFormat("%s parts, %.1f in a cell", WithCommas(column.parts().Count()),
                           column.parts_per_cell());
  } else {
    const uint64_t there = column.cells() - column.missing();
    for (const auto& [value, count] : column.values().Sorted()) {
      if (there == 0 || (!text.empty() && count * 100 < there)) break;
      absl::StrAppend(&text, text.empty() ? "" : ", ", Short(value, 20), " ", Share(count, there));
      if (text.size() > width) break;
    }
  }
  return Short(text, width);
}

std::string ColumnLine(const std::string& name, const std::string& type, const std::string& missing,
                       const std::string& distinct, const std::string& holds) {
  return absl::StrFormat("  %-*s %-*s %7s %*s  %s\n", kNameWidth, name, kTypeWidth, type, missing,
                         kDistinctWidth, distinct, holds);
}

std::string LineOf(const ColumnProfile& column, const std::string& type) {
  constexpr size_t kHolds = kScreenWidth - kNameWidth - kTypeWidth - kDistinctWidth - 14;
  return ColumnLine(
      Short(column.name(), kNameWidth), Short(type, kTypeWidth),
      Share(column.missing(), column.cells()),
      absl::StrCat(column.distinct().exact() ? "" : "~", WithCommas(column.distinct().Count())),
      HoldsText(column, kHolds));
}

void AppendWrapped(const std::string& line, std::string* text) {
  absl::StrAppend(text, Wrapped(line, kScreenWidth), "\n");
}

std::string NumberJson(double value) { return absl::StrFormat("%.9g", value); }

std::string ListJson(const std::vector<std::string>& texts) {
  return absl::StrCat("[",
                      absl::StrJoin(texts, ", ",
                                    [](std::string* out, const std::string& text) {
                                      out->append(JsonQuoted(Printable(text)));
                                    }),
                      "]");
}

std::string ColumnJson(const ColumnProfile& column) {
  std::string json = absl::StrCat(
      "{\"name\": ", JsonQuoted(Printable(column.name())), ", \"type\": \"",
      KindName(column.kind()), "\", \"cells\": ", column.cells(),
      ", \"missing\": ", column.missing(), ", \"empty\": ", column.empty(),
      ", \"missing_spellings\": {",
      absl::StrJoin(column.missing_spellings(), ", ",
                    [](std::string* out, const ColumnProfile::Spelling& spelling) {
                      absl::StrAppend(out, JsonQuoted(spelling.text), ": ", spelling.count);
                    }),
      "}, \"odd_cells\": ", column.odd_cells(), ", \"distinct\": ", column.distinct().Count(),
      ", \"distinct_exact\": ", column.distinct().exact() ? "true" : "false");
  if (HoldsNumbers(column) && column.numbers().count() > 0) {
    const std::vector<double> q =
        column.numbers().Quantiles({0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1});
    absl::StrAppend(&json, ", \"min\": ", NumberJson(q[0]), ", \"max\": ", NumberJson(q.back()),
                    ", \"mean\": ", NumberJson(column.moments().mean),
                    ", \"stddev\": ", NumberJson(column.moments().stddev()),
                    ", \"quantiles\": {\"0.01\": ", NumberJson(q[1]),
                    ", \"0.05\": ", NumberJson(q[2]), ", \"0.25\": ", NumberJson(q[3]),
                    ", \"0.5\": ", NumberJson(q[4]), ", \"0.75\": ", NumberJson(q[5]),
                    ", \"0.95\": ", NumberJson(q[6]), ", \"0.99\": ", NumberJson(q[7]), "}");
  }
  if (column.kind() == ColumnKind::kDate)
    absl::StrAppend(&json, ", \"date_format\": ", JsonQuoted(column.date_format()));
  if (HoldsDates(column)) {
    absl::StrAppend(&json,
                    ", \"earliest\": ", TimeText("\"%Y-%m-%dT%H:%M:%SZ\"", column.earliest()),
                    ", \"latest\": ", TimeText("\"%Y-%m-%dT%H:%M:%SZ\"", column.latest()));
  }
  if (column.kind() == ColumnKind::kSeveralValues) {
    absl::StrAppend(&json, ", \"multi_value_delimiter\": ", JsonQuoted(column.parts_delimiter()),
                    ", \"parts\": ", column.parts().Count(),
                    ", \"weights\": ", column.parts_have_weights() ? "true" : "false");
  }
  std::vector<std::string> values;
  constexpr size_t kValues = 10;
  for (const auto& [value, count] : column.values().Sorted()) {
    if (values.size() == kValues) break;
    values.push_back(
        absl::StrCat("{\"value\": ", JsonQuoted(Printable(value)), ", \"count\": ", count, "}"));
  }
  absl::StrAppend(&json, ", \"frequent\": [", absl::StrJoin(values, ", "),
                  "], \"frequent_error\": ", column.values().error(), "}");
  return json;
}

}  // namespace

std::string TableText(const TableProfile& table) {
  std::string text;
  size_t looked_at = 0;
  uint64_t size = 0;
  for (const TableProfile::File& file : table.files) {
    looked_at += file.looked_at;
    size += file.size;
  }
  std::string files = absl::StrCat("data: ", Counted(table.files.size(), "file"));
  if (size > 0) absl::StrAppend(&files, ", ", ByteCount(size));
  const char* const unit = FormatOf(table.shape.data).rows ? "row" : "line";
  absl::StrAppend(&files, "; looked at ", Counted(table.lines, unit), ", ",
                  ByteCount(table.text_bytes), " of text");
  if (table.whole) {
    absl::StrAppend(&files, ": all of it");
  } else {
    if (looked_at < table.files.size()) absl::StrAppend(&files, ", in ", looked_at, " files");
    absl::StrAppend(&files, ", of about ", WithCommas(table.all_lines), " ", unit,
                    "s (--all looks at everything)");
  }
  AppendWrapped(files, &text);
  AppendWrapped(absl::StrCat("format: ", FormatText(table.shape),
                             table.row_groups == 0
                                 ? ""
                                 : absl::StrCat(", ", WithCommas(table.all_lines), " rows in ",
                                                Counted(table.row_groups, "row group"))),
                &text);
  absl::StrAppend(&text, "columns: ", table.columns.size());
  if (!table.folder_columns.empty())
    absl::StrAppend(&text, ", and ", table.folder_columns.size(), " of folders");
  absl::StrAppend(&text, "\n");
  absl::StrAppend(&text, ColumnLine("name", "type", "missing", "distinct", "holds"));
  for (size_t c = 0; c < table.columns.size() && c < kShownColumns; ++c)
    absl::StrAppend(&text, LineOf(table.columns[c], TypeText(table.columns[c])));
  if (table.columns.size() > kShownColumns)
    absl::StrAppend(&text, "  ... (", table.columns.size(), " columns; --json has all)\n");
  for (const ColumnProfile& column : table.folder_columns)
    absl::StrAppend(&text, LineOf(column, "folder, " + TypeText(column)));
  AppendWrapped(
      absl::StrFormat("  ~ is an estimate with a standard error of %.1f %%; quantiles are "
                      "within %.0f %% of the rank",
                      100 * DistinctSketch::kError, 100 * QuantileSketch::kError),
      &text);
  if (table.bad.count > 0) AppendWrapped("bad lines: " + table.bad.Describe(), &text);
  for (const ColumnProfile& column : table.columns) {
    if (column.odd_cells() == 0) continue;
    AppendWrapped(absl::StrCat("column \"", PrintableLine(column.name()),
                               "\": ", Counted(column.odd_cells(), "value"),
                               column.odd_cells() == 1 ? " is no " : " are no ",
                               KindName(column.kind()), column.odd_cells() == 1 ? "" : "s"),
                  &text);
  }
  return text;
}

std::string ProposalText(const TableProfile& table, const LabelChoice& label,
                         const JobProposal& proposal, const std::vector<std::string>& suspicious) {
  std::string text;
  std::string line = absl::StrCat("label: \"", PrintableLine(table.columns[label.column].name()),
                                  "\", because ", label.why);
  if (!label.positive.empty())
    absl::StrAppend(&line, "; 1 means ", absl::StrJoin(label.positive, " or "));
  absl::StrAppend(&line, absl::StrFormat("; %.1f %% have label 1", 100 * label.positive_share));
  AppendWrapped(PrintableLine(line), &text);
  if (!label.others.empty()) {
    std::vector<std::string> others = label.others;
    if (others.size() > 5) others.resize(5);
    AppendWrapped(absl::StrCat("  others with two values: ", absl::StrJoin(others, ", "),
                               label.others.size() > 5 ? ", ..." : "", " (--label=COLUMN)"),
                  &text);
  }
  for (const std::string& assumption : proposal.assumptions)
    AppendWrapped(absl::StrCat("assumed: ", PrintableLine(assumption)), &text);
  for (const auto& [column, why] : proposal.left_out)
    AppendWrapped(absl::StrCat("left out: \"", PrintableLine(column), "\": ", why), &text);
  for (const std::string& warning : suspicious)
    AppendWrapped(absl::StrCat("warning: ", PrintableLine(warning)), &text);
  return text;
}

std::string DataReportJson(const TableProfile& table, const LabelChoice* label,
                           const JobProposal* proposal, const std::vector<std::string>& suspicious,
                           const std::string& job_text, const std::string& problem) {
  const CsvFormat& csv = table.shape.data.csv();
  std::vector<std::string> files, columns;
  for (const TableProfile::File& file : table.files) {
    files.push_back(absl::StrCat("{\"path\": ", JsonQuoted(Printable(file.path)),
                                 ", \"size\": ", file.size, ", \"lines\": ", file.lines,
                                 ", \"whole\": ", file.whole ? "true" : "false", "}"));
  }
  for (const ColumnProfile& column : table.columns) columns.push_back(ColumnJson(column));
  std::vector<std::string> folders;
  for (const ColumnProfile& column : table.folder_columns) folders.push_back(ColumnJson(column));
  std::string json = absl::StrCat(
      "{\n\"files\": [", absl::StrJoin(files, ",\n  "), "],\n\"lines\": ", table.lines,
      ",\n\"text_bytes\": ", table.text_bytes, ",\n\"all_lines\": ", table.all_lines,
      ",\n\"whole\": ", table.whole ? "true" : "false", ",\n\"format\": \"",
      DataConfig::Format_Name(table.shape.data.format()),
      "\",\n\"delimiter\": ", JsonQuoted(Printable(csv.delimiter())),
      ",\n\"header\": ", csv.header() ? "true" : "false",
      ",\n\"comment_prefix\": ", JsonQuoted(csv.comment_prefix()),
      ",\n\"distinct_error\": ", NumberJson(DistinctSketch::kError),
      ",\n\"quantile_error\": ", NumberJson(QuantileSketch::kError), ",\n\"columns\": [\n  ",
      absl::StrJoin(columns, ",\n  "), "],\n\"folder_columns\": [", absl::StrJoin(folders, ",\n  "),
      "],\n\"duplicate_names\": ", ListJson(table.duplicate_names),
      ",\n\"bad_lines\": {\"count\": ", table.bad.count, ", \"first\": ", ListJson(table.bad.first),
      "},\n\"row_groups\": ", table.row_groups);
  if (label != nullptr) {
    absl::StrAppend(
        &json,
        ",\n\"label\": {\"column\": ", JsonQuoted(Printable(table.columns[label->column].name())),
        ", \"positive\": ", ListJson(label->positive),
        ", \"negative\": ", ListJson(label->negative),
        ", \"positive_at_least\": ", label->has_threshold ? NumberJson(label->threshold) : "null",
        ", \"positive_share\": ", NumberJson(label->positive_share),
        ", \"candidates\": ", ListJson(label->others),
        ", \"why\": ", JsonQuoted(Printable(label->why)), "}");
  } else {
    absl::StrAppend(&json, ",\n\"label\": null");
  }
  if (proposal != nullptr) {
    std::vector<std::string> left_out;
    for (const auto& [column, why] : proposal->left_out)
      left_out.push_back(absl::StrCat(JsonQuoted(Printable(column)), ": ", JsonQuoted(why)));
    absl::StrAppend(&json, ",\n\"assumptions\": ", ListJson(proposal->assumptions),
                    ",\n\"left_out\": {", absl::StrJoin(left_out, ", "), "}");
  }
  absl::StrAppend(&json, ",\n\"warnings\": ", ListJson(suspicious),
                  ",\n\"problem\": ", JsonQuoted(Printable(problem)),
                  ",\n\"job\": ", JsonQuoted(Printable(job_text)), "\n}\n");
  return json;
}

}  // namespace sluice::cli
