// The line at the beginning of delimited text that names its columns.
//
// Thread safety: safe; each call opens the file itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/data/line_parser.h"
#include "model/data/line_reader.h"
#include "proto/config.pb.h"

namespace sluice {

// The mark that some editors put before the first line of a text.
void RemoveByteOrderMark(LineReader::Line* line);

struct HeaderLine {
  std::vector<std::string> names;  // none: the file has no line but comments
  uint64_t end = 0;                // where the examples begin, in the decompressed text
  uint64_t lines = 0;              // up to there
};

// INVALID_ARGUMENT, naming the file: its header is too long or cannot be cut into cells.
absl::StatusOr<HeaderLine> ReadHeaderLine(const Delimited& delimited, const std::string& path);
// The same of a reader that stands at the beginning; it then stands behind the header.
absl::StatusOr<HeaderLine> ReadHeaderLine(const Delimited& delimited, LineReader* reader);

// The columns of `data`, whose defaults are filled in, in the order of a line: those that the
// format or the configuration names, else those of the first file's header (of train_files, else of
// eval_files). None when nothing names them.
absl::StatusOr<std::vector<std::string>> ColumnsOfData(const DataConfig& data);

}  // namespace sluice
