#include "model/profile/parquet_profile.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "model/data/file_columns.h"
#include "model/data/parquet_file.h"
#include "model/data/text_form.h"
#include "model/features/cell_column.h"
#include "model/profile/row_cutter.h"
#include "model/profile/table_columns.h"

namespace sluice {
namespace {

constexpr uint64_t kFewestPlaces = 8;    // of a file that is read in part, at least
constexpr uint64_t kRowsAtOnce = 4096;   // so that little is decoded in vain
constexpr uint64_t kLeastCellBytes = 8;  // that a cell counts for, however well it is packed
constexpr size_t kNamesBefore = 2;       // in ParquetFile::Options.columns: label and weight

// A date of a column, in the form that DatePart names.
void AppendInstant(int64_t seconds, bool with_time, std::string* to) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm parts = {};
  if (gmtime_r(&time, &parts) == nullptr) return;
  absl::StrAppendFormat(to, "%04d-%02d-%02d", parts.tm_year + 1900, parts.tm_mon + 1,
                        parts.tm_mday);
  if (with_time)
    absl::StrAppendFormat(to, " %02d:%02d:%02d", parts.tm_hour, parts.tm_min, parts.tm_sec);
}

bool HasDictionary(const ArrowSchema& schema, const std::vector<size_t>& steps) {
  const ArrowSchema* at = &schema;
  for (const size_t step : steps) at = at->children[step];
  return at->dictionary != nullptr;
}

// Cells of one column as text.
class CellTexts {
 public:
  explicit CellTexts(bool with_time) : with_time_(with_time) {}

  // Valid until the next call.
  std::string_view Of(const CellColumn& column, size_t row) {
    const Cell cell = CellAt(column, row, &values_);
    if (cell.kind() != Cell::Kind::kList) return Of(cell, &memory_);
    std::string joined;
    for (const Cell& value : values_) {
      const std::string_view text = Of(value, &memory_);
      if (text.empty()) continue;
      if (!joined.empty()) joined += RowCutter::kListDelimiter;
      joined.append(text);
      fractions_ = fractions_ || (value.kind() == Cell::Kind::kDouble &&
                                  value.number() != std::trunc(value.number()));
    }
    list_ = std::move(joined);
    return list_;
  }
  // Whether a list has had a number that is not whole.
  bool fractions() const { return fractions_; }

 private:
  std::string_view Of(const Cell& cell, NumberText* memory) {
    if (cell.kind() == Cell::Kind::kDouble && std::isnan(cell.number())) return {};
    if (cell.kind() != Cell::Kind::kInstant) return TextOf(cell, memory);
    date_.clear();
    AppendInstant(cell.integer(), with_time_, &date_);
    return date_;
  }

  const bool with_time_;
  bool fractions_ = false;
  NumberText memory_;
  std::string date_, list_;
  std::vector<Cell> values_;
};

class ParquetProfiler {
 public:
  ParquetProfiler(const ProfileLimits& limits, Env* env)
      : limits_(limits),
        env_(env),
        added_(&table_, [this](size_t c, ColumnProfile* column) { Start(columns_[c], column); }) {}

  absl::StatusOr<TableProfile> Read(const std::vector<std::string>& files) {
    table_.shape.data.set_format(DataConfig::PARQUET);
    for (const std::string& path : files) {
      table_.files.push_back({path});
      SLUICE_ASSIGN_OR_RETURN(const FileIdentity identity, IdentifyFile(path, env_));
      table_.files.back().size = identity.size;
    }
    const std::vector<size_t> chosen = ChooseFiles(files.size(), limits_.files);
    for (const size_t f : chosen) SLUICE_RETURN_IF_ERROR(ReadColumns(files[f]));
    for (const Column& column : columns_) {
      names_.push_back(column.path.name);
      texts_.emplace_back(column.path.type != "date");
    }
    table_.shape.columns = names_;
    cells_.resize(names_.size());
    uint64_t left = limits_.bytes;
    for (size_t i = 0; i < chosen.size(); ++i) {
      SLUICE_ASSIGN_OR_RETURN(const uint64_t read,
                              ReadFile(left / (chosen.size() - i), &table_.files[chosen[i]]));
      left -= std::min(left, read);
    }
    if (table_.lines == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("data file ", files[0], files.size() > 1 ? " and the others have" : " has",
                       " no rows; give files with examples"));
    }
    added_.Look(names_);
    Finish();
    return std::move(table_);
  }

 private:
  struct Column {
    ArrowPath path;
    bool dictionary = false;
  };

  static void Start(const Column& column, ColumnProfile* profile) {
    const ArrowPath& path = column.path;
    if (path.list) {
      profile->SetLists(RowCutter::kListDelimiter, path.weighted);
    } else if (path.values == ArrowClass::kDate) {
      profile->SetDates(path.type != "date");
    } else if (path.values == ArrowClass::kText && column.dictionary) {
      profile->SetNames();
    }
  }

  void LeaveOut(const std::string& name, std::string why) {
    const auto known = std::find_if(table_.no_features.begin(), table_.no_features.end(),
                                    [&](const auto& column) { return column.first == name; });
    if (known == table_.no_features.end()) table_.no_features.emplace_back(name, std::move(why));
  }

  // Takes the columns of the first file, and checks that the others have them.
  absl::Status ReadColumns(const std::string& path) {
    SLUICE_ASSIGN_OR_RETURN(const auto reader, ParquetFile::OpenReader(path, env_));
    const auto paths = ArrowPathsOf(reader->schema());
    if (!paths.ok()) {
      return absl::Status(paths.status().code(),
                          absl::StrCat("data file ", path, ": ", paths.status().message()));
    }
    if (!first_file_.empty()) return Unite(path, *paths);
    first_file_ = path;
    std::map<std::string, int> times;
    for (const ArrowPath& column : *paths) ++times[column.name];
    for (const ArrowPath& column : *paths) {
      if (column.name.empty()) {
        LeaveOut("", "it has no name");
      } else if (int& n = times[column.name]; n != 1) {
        if (n > 1) table_.duplicate_names.push_back(column.name);
        n = 0;  // named once
        LeaveOut(column.name, "several columns have this name");
      } else if (column.values == ArrowClass::kUnreadable) {
        LeaveOut(column.name, absl::StrCat("its type, ", column.type, ", is not read"));
      } else {
        columns_.push_back({column, HasDictionary(reader->schema(), column.steps)});
        if (column.list && column.values == ArrowClass::kDate)
          LeaveOut(column.name, "it holds lists of dates");
      }
    }
    if (columns_.size() > RowCutter::kMostColumns) {
      return absl::InvalidArgumentError(absl::StrCat(
          "data file ", path, " has ", columns_.size(), " columns, and sluice data check looks at ",
          RowCutter::kMostColumns, " of them at most; write the job by hand"));
    }
    if (columns_.size() >= 2) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "data file ", path, " has ", columns_.empty() ? "no column" : "one column only",
        " that can be read; give a file with a label and at least one feature"));
  }

  absl::Status Unite(const std::string& path, const std::vector<ArrowPath>& paths) {
    std::map<std::string, const ArrowPath*> by_name;
    for (const ArrowPath& column : paths) by_name[column.name] = &column;
    for (Column& own : columns_) {
      const auto found = by_name.find(own.path.name);
      if (found == by_name.end()) {
        return absl::InvalidArgumentError(
            absl::StrCat("data file ", path, " has no column \"", own.path.name, "\", and ",
                         first_file_, " has it; the files of a job have the same columns"));
      }
      const ArrowPath& column = *found->second;
      if (own.path.values == ArrowClass::kNothing) own.path = column;
      if (column.values == ArrowClass::kNothing) continue;
      if (column.values != own.path.values || column.list != own.path.list ||
          column.weighted != own.path.weighted) {
        return absl::InvalidArgumentError(
            absl::StrCat("data file ", path, ": column \"", column.name, "\" has the type ",
                         column.type, ", and ", own.path.type, " in ", first_file_,
                         "; the files of a job need columns of one kind: convert one of them"));
      }
    }
    return absl::OkStatus();
  }

  // Reads about so many bytes of columns. Returns how many.
  absl::StatusOr<uint64_t> ReadFile(uint64_t bytes, TableProfile::File* file) {
    ParquetFile::Options options;
    options.columns.resize(kNamesBefore);
    options.columns.insert(options.columns.end(), names_.begin(), names_.end());
    options.need_label = false;
    options.most_batch_rows = kRowsAtOnce;
    SLUICE_ASSIGN_OR_RETURN(const auto open, ParquetFile::Open(file->path, env_, options));
    file->looked_at = true;
    table_.row_groups += open->groups().size();
    opened_rows_ += open->rows();
    opened_bytes_ += file->size;
    struct Group {
      uint64_t begin = 0, rows = 0, row_bytes = 0;
    };
    std::vector<Group> groups;  // that have rows
    uint64_t begin = 0, all_bytes = 0;
    for (const RowGroup& group : open->groups()) {
      if (group.rows == 0) continue;
      const uint64_t row_bytes =
          std::max<uint64_t>(group.bytes / group.rows, kLeastCellBytes * names_.size());
      groups.push_back({begin, group.rows, row_bytes});
      all_bytes += row_bytes * group.rows;
      begin += group.rows;
    }
    file->whole = all_bytes <= bytes;
    if (groups.empty()) return 0;
    uint64_t places = groups.size(), share = UINT64_MAX;
    if (!file->whole) {
      // As many groups as fit whole, or parts of some.
      const uint64_t fitting = bytes / std::max<uint64_t>(all_bytes / groups.size(), 1);
      places = std::min<uint64_t>(places, std::max(kFewestPlaces, fitting));
      share = bytes / places;
    }
    uint64_t read = 0;
    for (uint64_t i = 0; i < places; ++i) {
      const Group& group = groups[i * groups.size() / places];
      const uint64_t rows = std::min(group.rows, std::max<uint64_t>(share / group.row_bytes, 1));
      SLUICE_RETURN_IF_ERROR(ReadRows(group.begin, group.begin + rows, open.get(), file));
      read += rows * group.row_bytes;
    }
    return read;
  }

  absl::Status ReadRows(uint64_t row, uint64_t end, ParquetFile* open, TableProfile::File* file) {
    while (row < end) {
      SLUICE_ASSIGN_OR_RETURN(const ParquetFile::Rows* const rows, open->RowsAt(row, end));
      const uint64_t n = std::min(end, rows->end) - row;
      const auto columns = rows->columns->Read(rows->batch.get(), row - rows->begin, n);
      if (!columns.ok()) {
        return absl::Status(columns.status().code(), absl::StrCat("data file ", file->path, ": ",
                                                                  columns.status().message()));
      }
      for (size_t r = 0; r < n; ++r) {
        for (size_t c = 0; c < cells_.size(); ++c) {
          cells_[c] = texts_[c].Of((*columns)[kNamesBefore + c], r);
          file->text_bytes += cells_[c].size();
          table_.text_bytes += cells_[c].size();
        }
        added_.Add(names_, cells_);
      }
      file->lines += n;
      table_.lines += n;
      row += n;
      while (open->DropOldest()) {
      }
    }
    return absl::OkStatus();
  }

  void Finish() {
    for (size_t c = 0; c < columns_.size(); ++c) {
      if (texts_[c].fractions() && !columns_[c].path.weighted &&
          table_.columns[c].vector_size() == 0) {
        LeaveOut(names_[c],
                 "it holds lists of numbers that are not whole, which name no values, and not the "
                 "same number of them in each row, as the feature numeric { dim } needs");
      }
    }
    double all_bytes = 0;
    for (const TableProfile::File& file : table_.files) {
      table_.whole = table_.whole && file.whole;
      all_bytes += static_cast<double>(file.size);
    }
    // Exact when all files were opened.
    table_.all_lines = opened_rows_;
    const double opened = static_cast<double>(opened_bytes_);
    if (all_bytes > opened && opened > 0)
      table_.all_lines =
          static_cast<uint64_t>(static_cast<double>(opened_rows_) * (all_bytes / opened));
  }

  const ProfileLimits limits_;
  Env* const env_;
  TableProfile table_;
  TableColumns added_;
  std::string first_file_;
  std::vector<Column> columns_;
  std::vector<std::string> names_;  // of columns_
  std::vector<CellTexts> texts_;    // by column
  std::vector<std::string_view> cells_;
  uint64_t opened_rows_ = 0, opened_bytes_ = 0;
};

}  // namespace

absl::StatusOr<bool> BeginsAsParquet(const std::vector<std::string>& files, Env* env) {
  for (const std::string& path : files) {
    if (path == kStandardInputFile) return false;
    const auto head = env->ReadRange(path, 0, kTextFormBytes);
    // What cannot be read is refused where it is read.
    if (!head.ok()) return false;
    if (head->empty()) continue;
    // "PAR1,x" may be a header line: text has no byte of 0.
    return head->substr(0, 4) == "PAR1" && !CheckTextForm(path, *head).ok();
  }
  return false;
}

absl::StatusOr<TableProfile> ProfileParquet(const std::vector<std::string>& files,
                                            const ProfileLimits& limits, Env* env) {
  return ParquetProfiler(limits, env).Read(files);
}

}  // namespace sluice
