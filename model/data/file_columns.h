// The columns of data files: the names that a header line or the configuration gives them, and the
// places of those that a job needs.
//
// Thread safety: free functions, safe from any thread. A reader belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "model/data/line_parser.h"
#include "model/data/line_reader.h"
#include "proto/config.pb.h"

namespace sluice {

// Removes the mark that some editors put before the first line of a text. Where texts are joined it
// may be before any line.
inline void RemoveByteOrderMark(LineReader::Line* line) {
  // It would become part of the first cell.
  if (line->size < 3 || line->data[0] != '\xEF' || line->text().substr(0, 3) != "\xEF\xBB\xBF")
    return;
  line->data += 3;
  line->size -= 3;
}

struct HeaderLine {
  std::vector<std::string> names;  // empty: the file has no lines, or only comments
  std::string text;                // the line itself
  uint64_t end = 0;                // offset in the decompressed text where the examples begin
  uint64_t lines = 0;              // lines before `end`
};

// INVALID_ARGUMENT, naming the file, when its header is too long or cannot be split into cells.
absl::StatusOr<HeaderLine> ReadHeaderLine(const Delimited& delimited, const std::string& path,
                                          Env* env);
// The same for a reader at the beginning of the text, which it leaves after the header.
absl::StatusOr<HeaderLine> ReadHeaderLine(const Delimited& delimited, LineReader* reader);

// The columns of `data`, in the order of a line. They are those that the format or the
// configuration names, or those that the first file (of train_files, or else of eval_files) names:
// in its header, or, in JSON_LINES, in its first lines. Those that the folders of this file name
// come after them. Empty when nothing names them.
// REQUIRES: the defaults of `data` are filled in.
absl::StatusOr<std::vector<std::string>> ColumnsOfData(const DataConfig& data);
// The same, for data that `env` opens. It outlives what is returned.
std::function<absl::StatusOr<std::vector<std::string>>(const DataConfig&)> ColumnsReader(Env* env);

// Places in FeatureSchema::columns().
inline constexpr size_t kLabelColumn = 0, kWeightColumn = 1;

// NamedColumns, and those of the folders that patterns name.
std::vector<std::string> NamedOrFolderColumns(const DataConfig& data);

// Returns the place of each needed column in `names`, or -1 for one that may be missing: a column
// without a name, and label and weight unless `need_label`. Columns from `features_end` on are not
// features. INVALID_ARGUMENT names a missing column, with the closest name, or one that `names` has
// twice. `where` says whose names they are: "data file F" or "data.csv.columns".
absl::StatusOr<std::vector<int>> BindColumns(const std::vector<std::string>& needed,
                                             const std::vector<std::string>& names, bool need_label,
                                             const std::string& where,
                                             size_t features_end = SIZE_MAX);

}  // namespace sluice
