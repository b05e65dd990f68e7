// JSON_LINES: an object on each line.
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/csv_options.h"
#include "model/data/file_columns.h"
#include "model/data/format_reader.h"
#include "model/data/json_lines_parser.h"
#include "model/data/line_format.h"

namespace sluice {
namespace {

// The beginning of a file that names its columns.
constexpr uint64_t kColumnBytes = 1 << 20, kColumnLines = 1000;
constexpr size_t kMostColumns = 100'000;

absl::StatusOr<std::unique_ptr<DataSource>> MakeJsonLinesSource(
    const DataConfig& config, std::shared_ptr<const FeatureSchema> schema, Env* env) {
  SLUICE_RETURN_IF_ERROR(CheckNoCsvOptions(config));
  return MakeLineSource(
      std::make_unique<UniformLineFormat<JsonLinesParser>>(config, std::move(schema), env));
}

// The keys of the first lines, in the order in which they occur. Malformed lines name none.
absl::StatusOr<std::vector<std::string>> KeysOfFirstLines(const DataConfig& config,
                                                          const std::string& path, Env* env) {
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<TextReader> text, OpenText(config, path, env));
  LineReader reader(std::move(text));
  reader.ExpectEnd(kColumnBytes);
  std::vector<std::string> names;
  absl::flat_hash_set<std::string> known;
  LineReader::Line line;
  for (uint64_t n = 0; n < kColumnLines && reader.next_offset() < kColumnBytes; ++n) {
    SLUICE_ASSIGN_OR_RETURN(const bool more, reader.Next(&line));
    if (!more) break;
    RemoveByteOrderMark(&line);
    if (line.too_long) continue;
    JsonLinesParser::FindColumns(line.text(), [&](const std::string& name) {
      if (names.size() < kMostColumns && known.insert(name).second) names.push_back(name);
    }).IgnoreError();
  }
  return names;
}

}  // namespace

FormatReader ReadJsonLines() { return {&MakeJsonLinesSource, &KeysOfFirstLines}; }

}  // namespace sluice
