#include "model/data/header_line.h"

#include <memory>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/data_columns.h"
#include "model/data/data_source.h"
#include "model/data/text_reader.h"

namespace sluice {

void RemoveByteOrderMark(LineReader::Line* line) {
  if (line->offset == 0 && line->text().substr(0, 3) == "\xEF\xBB\xBF") {
    line->data += 3;
    line->size -= 3;
  }
}

absl::StatusOr<HeaderLine> ReadHeaderLine(const Delimited& delimited, const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<TextReader> text, TextReader::Open(path));
  LineReader reader(std::move(text));
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
    ++header.lines;
    if (line.too_long) {
      return absl::InvalidArgumentError(absl::StrCat("data file ", path,
                                                     ": the header line is longer than ",
                                                     LineReader::kMaxLineBytes, " bytes"));
    }
    RemoveByteOrderMark(&line);
    if (!delimited.Skips(line.text())) break;
  }
  std::vector<std::string_view> cells(line.size + 1);  // a line cannot have more cells
  const absl::StatusOr<size_t> count = delimited.Split(line.data, line.size, &cells);
  if (!count.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("data file ", path, ": header line: ", count.status().message()));
  }
  header.names.assign(cells.begin(), cells.begin() + *count);
  return header;
}

absl::StatusOr<std::vector<std::string>> ColumnsOfData(const DataConfig& data) {
  const bool delimited = data.format() == DataConfig::CSV || data.format() == DataConfig::TSV;
  if (!delimited || !data.csv().header()) return NamedColumns(data);
  SLUICE_ASSIGN_OR_RETURN(const Delimited cut, Delimited::FromConfig(data));
  const auto& patterns = data.train_files().empty() ? data.eval_files() : data.train_files();
  SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> files, ExpandFiles(patterns));
  std::vector<std::string> names;
  // An empty file has no header.
  for (size_t i = 0; i < files.size() && names.empty(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(HeaderLine header, ReadHeaderLine(cut, files[i]));
    names = std::move(header.names);
  }
  return names;
}

}  // namespace sluice
