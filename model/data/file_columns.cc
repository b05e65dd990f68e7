#include "model/data/file_columns.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/config/closest_name.h"
#include "common/config/data_columns.h"
#include "common/config/data_format.h"
#include "model/data/expand_files.h"
#include "model/data/format_reader.h"
#include "model/data/partition_folders.h"
#include "model/data/text_reader.h"
#include "model/features/cell.h"

namespace sluice {
namespace {

constexpr size_t kListedColumns = 100;    // listed in a message
constexpr size_t kShownBytes = 60;        // of a column's name in a message
constexpr size_t kSuggestedFrom = 10000;  // names compared with a missing one

std::string ListColumns(const std::vector<std::string>& names) {
  const size_t listed = std::min(names.size(), kListedColumns);
  std::vector<std::string> shown;
  for (size_t i = 0; i < listed; ++i) {
    const bool longer = names[i].size() > kShownBytes;
    shown.push_back(absl::StrCat(Printable(names[i].substr(0, kShownBytes)), longer ? "..." : ""));
  }
  std::string text = absl::StrJoin(shown, ", ");
  if (listed < names.size()) absl::StrAppend(&text, ", ... (", names.size(), " columns)");
  return text;
}

// The names that no needed column has, which may be misspellings of a missing one. Bounds how many
// and how long names a message compares.
std::vector<std::string> FreeNames(const std::vector<std::string>& needed,
                                   const std::vector<std::string>& names) {
  const absl::flat_hash_set<std::string> taken(needed.begin(), needed.end());
  std::vector<std::string> free;
  for (const std::string& name : names) {
    if (free.size() < kSuggestedFrom && name.size() <= kShownBytes && !taken.contains(name))
      free.push_back(name);
  }
  return free;
}

std::string Suggestion(const std::string& wanted, const std::vector<std::string>& names) {
  const std::string closest = ClosestName(wanted, names);
  return closest.empty() ? "" : absl::StrCat("; did you mean \"", Printable(closest), "\"?");
}

// The option that may read a header without a needed column.
std::string HintOfHeader(const std::vector<std::string>& names) {
  if (names.empty()) return "";
  const std::string& first = names.front();
  if (!first.empty() && first.front() == '#') {
    return "; if lines that begin with '#' are comments, set data.csv.comment_prefix: \"#\"; if "
           "this is the header, remove its '#'";
  }
  if (names.size() > 1) return "";
  for (const char* delimiter : {";", "\t", "|", ","}) {
    if (first.find(delimiter) == std::string::npos) continue;
    return absl::StrCat("; the header is one column: set data.csv.delimiter: ",
                        QuotedCell(delimiter));
  }
  return "";
}

}  // namespace

absl::StatusOr<HeaderLine> ReadHeaderLine(const Delimited& delimited, const std::string& path,
                                          Env* env) {
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<TextReader> text, TextReader::Open(path, env));
  LineReader reader(std::move(text), delimited.record_rule());
  reader.ExpectEnd(0);  // only the header is wanted, so read little at a time
  return ReadHeaderLine(delimited, &reader);
}

absl::StatusOr<HeaderLine> ReadHeaderLine(const Delimited& delimited, LineReader* reader) {
  const std::string& path = reader->text().path();
  HeaderLine header;
  LineReader::Line line;
  while (true) {
    SLUICE_ASSIGN_OR_RETURN(const bool more, reader->Next(&line));
    header.end = reader->next_offset();
    if (!more) return header;
    // Comments and empty lines may come before the header.
    header.lines += line.line_ends;
    if (line.too_long) {
      return absl::InvalidArgumentError(absl::StrCat("data file ", path,
                                                     ": the header line is longer than ",
                                                     LineReader::kMaxLineBytes, " bytes"));
    }
    RemoveByteOrderMark(&line);
    if (!delimited.Skips(line.text())) break;
  }
  header.text = std::string(line.text());              // before the cells lose their quotes
  std::vector<std::string_view> cells(line.size + 1);  // a line cannot have more cells
  const absl::StatusOr<size_t> count = delimited.Split(line.data, line.size, &cells);
  if (!count.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("data file ", path, ": header line: ", count.status().message()));
  }
  header.names.assign(cells.begin(), cells.begin() + *count);
  return header;
}

namespace {

void AddColumn(const std::string& name, std::vector<std::string>* names) {
  if (std::find(names->begin(), names->end(), name) == names->end()) names->push_back(name);
}

// ColumnsOfData with the files that `env` opens.
absl::StatusOr<std::vector<std::string>> ColumnsIn(const DataConfig& data, Env* env) {
  const FormatReader* const reader = ReaderOf(data);
  if (reader == nullptr || reader->columns_of_file == nullptr ||
      (FormatOf(data).delimited && !data.csv().header()))
    return NamedOrFolderColumns(data);
  // An evaluation has no training files.
  const auto& patterns = data.train_files().empty() ? data.eval_files() : data.train_files();
  SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> files, ExpandFiles(patterns, env));
  std::vector<std::string> names;
  // An empty file names no columns.
  for (size_t i = 0; i < files.size() && names.empty(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(names, reader->columns_of_file(data, files[i], env));
    if (names.empty()) continue;
    for (const auto& [name, value] : PartitionColumns(data, files[i])) AddColumn(name, &names);
  }
  return names;
}

}  // namespace

std::vector<std::string> NamedOrFolderColumns(const DataConfig& data) {
  std::vector<std::string> names = NamedColumns(data);
  if (names.empty()) return names;
  for (const std::string& name : FolderColumns(data)) AddColumn(name, &names);
  return names;
}

absl::StatusOr<std::vector<std::string>> ColumnsOfData(const DataConfig& data) {
  return ColumnsReader(Env::Real())(data);
}

std::function<absl::StatusOr<std::vector<std::string>>(const DataConfig&)> ColumnsReader(Env* env) {
  return [env](const DataConfig& data) { return ColumnsIn(data, env); };
}

absl::StatusOr<std::vector<int>> BindColumns(const std::vector<std::string>& needed,
                                             const std::vector<std::string>& names, bool need_label,
                                             const std::string& where, size_t features_end) {
  std::vector<int> bound;
  for (size_t i = 0; i < needed.size(); ++i) {
    const auto first = std::find(names.begin(), names.end(), needed[i]);
    bound.push_back(
        first == names.end() || needed[i].empty() ? -1 : static_cast<int>(first - names.begin()));
    if (needed[i].empty()) continue;
    if (first == names.end()) {
      if (!need_label && i <= kWeightColumn) continue;
      const char* role = i == kLabelColumn    ? "the label"
                         : i == kWeightColumn ? "the weight"
                         : i >= features_end  ? "the id_column"
                                              : "a feature";
      return absl::InvalidArgumentError(
          absl::StrCat(where, " has no column \"", needed[i], "\", which the job uses as ", role,
                       Suggestion(needed[i], FreeNames(needed, names)), HintOfHeader(names),
                       "; its columns are: ", ListColumns(names)));
    }
    // Which of the two is meant cannot be known, and a wrong guess would train on wrong data.
    if (std::find(first + 1, names.end(), needed[i]) != names.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, " has the column \"", needed[i], "\" twice; rename one of them"));
    }
  }
  return bound;
}

}  // namespace sluice
