// Reads the line at the beginning of delimited text that names its columns.
//
// Thread safety: free functions, safe from any thread. A reader belongs to one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/data/line_parser.h"
#include "model/data/line_reader.h"
#include "proto/config.pb.h"

namespace sluice {

// Removes the mark that some editors put before the first line of a text.
void RemoveByteOrderMark(LineReader::Line* line);

struct HeaderLine {
  std::vector<std::string> names;  // empty: the file has no lines, or only comments
  uint64_t end = 0;                // offset in the decompressed text where the examples begin
  uint64_t lines = 0;              // lines before `end`
};

// INVALID_ARGUMENT, naming the file, when its header is too long or cannot be split into cells.
absl::StatusOr<HeaderLine> ReadHeaderLine(const Delimited& delimited, const std::string& path);
// The same for a reader at the beginning of the text, which it leaves after the header.
absl::StatusOr<HeaderLine> ReadHeaderLine(const Delimited& delimited, LineReader* reader);

// The columns of `data`, in the order of a line. They are those that the format or the
// configuration names, or those in the header of the first file (of train_files, or else of
// eval_files). Empty when nothing names them.
// REQUIRES: the defaults of `data` are filled in.
absl::StatusOr<std::vector<std::string>> ColumnsOfData(const DataConfig& data);

}  // namespace sluice
