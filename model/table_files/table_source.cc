#include "model/table_files/table_source.h"

#include <algorithm>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/config/closest_name.h"

namespace sluice {
namespace {

bool IsOneFile(const std::string& file) {
  return absl::EndsWith(file, ".npz") || absl::EndsWith(file, ".npy") ||
         absl::EndsWith(file, ".parquet");
}

}  // namespace

// The floats stay as they are: every row that is read overwrites them.
void SourceBlock::Clear() {
  rows = 0;
  numbers.clear();
  texts.clear();
  features.clear();
  last_seen.clear();
  count.clear();
}

absl::StatusOr<std::unique_ptr<TableSource>> TableSource::Open(
    const std::vector<std::string>& files, const SourceOptions& options, Env* env) {
  const auto refuse = [&](absl::string_view flag, absl::string_view kind) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " is for ", kind, ", and ", files[0], " is not one; leave it out"));
  };
  if (files.size() == 1 && IsOneFile(files[0]) && !options.text_columns.empty())
    return refuse("--text_columns", "a text file");
  if (!options.name.empty() && !(files.size() == 1 && absl::EndsWith(files[0], ".npz")))
    return refuse("--name", "an .npz of DeepRec");
  if (files.size() == 1 && absl::EndsWith(files[0], ".parquet"))
    return OpenParquetSource(files[0], options, env);
  if (files.size() == 1 && IsOneFile(files[0])) return OpenNpzSource(files[0], options, env);
  const auto one = std::find_if(files.begin(), files.end(), IsOneFile);
  if (one != files.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        *one, " is a whole table, and ", files.size(),
        " files are given; only the parts of a text are read together: give one file"));
  }
  return OpenTextSource(files, options, env);
}

absl::Status WrongWidth(const std::string& place, uint64_t width, const std::string& column,
                        uint64_t wanted) {
  return absl::InvalidArgumentError(absl::StrCat(
      place, " has ", width, width == 1 ? " value" : " values", " a row, but column '", column,
      "' of the table has ", wanted, "; give the width of the job, or another file"));
}

absl::StatusOr<size_t> ChooseGroup(const TableColumns& columns, const std::string& column,
                                   uint64_t width, const std::string& place) {
  std::vector<std::string> names;
  std::vector<size_t> fitting;
  for (size_t i = 0; i < columns.groups(); ++i) {
    const TableColumns::Floats& group = columns.floats()[i];
    names.push_back(group.group);
    if (group.group == column || (column.empty() && columns.groups() == 1)) {
      if (group.dim != width) return WrongWidth(place, width, group.group, group.dim);
      return i;
    }
    if (group.dim == width) fitting.push_back(i);
  }
  if (!column.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the table has no column '", column, "'", DidYouMeanOrAll(column, names)));
  }
  if (fitting.size() == 1) return fitting[0];
  return absl::InvalidArgumentError(absl::StrCat(
      place, " has ", width, " values a row, and the table several columns (",
      absl::StrJoin(columns.floats().begin(), columns.floats().begin() + columns.groups(), ", ",
                    [](std::string* out, const TableColumns::Floats& group) {
                      absl::StrAppend(out, group.group, ": ", group.dim);
                    }),
      "); give --column=NAME, one that has this width"));
}

absl::Status CheckHasState(const std::string& file, const TableColumns& columns,
                           const std::vector<bool>& has, bool history) {
  std::vector<std::string> missing;
  for (size_t i = 0; i < has.size(); ++i) {
    if (!has[i]) missing.push_back(columns.floats()[i].name);
  }
  if (!history) {
    missing.push_back(kCountColumn);
    missing.push_back(kLastSeenColumn);
  }
  if (missing.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--state needs the whole state of the optimizers, and ", file, " lacks ",
                   absl::StrJoin(missing, ", "),
                   "; export it with --state, or leave out --state to take the weights alone"));
}

}  // namespace sluice
