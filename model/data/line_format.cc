#include "model/data/line_format.h"

#include <algorithm>

#include "common/base/status_macros.h"
#include "common/config/data_format.h"
#include "model/data/file_columns.h"
#include "model/data/format_reader.h"
#include "model/data/partition_folders.h"
#include "model/data/text_reader.h"

namespace sluice {
namespace {

// Sets the constants of the file at `path`; of standard input, which is in no folder, none.
void SetFolders(const DataConfig& data, const std::vector<std::string>& columns,
                const std::string& path, FileParser* file) {
  const auto& absent = data.csv().missing();
  for (const auto& [name, value] : PartitionColumns(data, path)) {
    const auto column = std::find(columns.begin(), columns.end(), name);
    const size_t place = static_cast<size_t>(column - columns.begin());
    if (column == columns.end() || (place < file->has.size() && file->has[place])) continue;
    if (value.empty() || std::find(absent.begin(), absent.end(), value) != absent.end()) continue;
    file->constants.push_back({place, value});
  }
}

}  // namespace

const FormatReader* ReaderOf(const DataConfig& config) {
  switch (config.format()) {
#define SLUICE_DATA_FORMAT(enumerator, Name)          \
  case DataConfig::enumerator: {                      \
    static const FormatReader kReader = Read##Name(); \
    return &kReader;                                  \
  }
#include "common/config/data_formats.inc"
#undef SLUICE_DATA_FORMAT
    default:
      return nullptr;
  }
}

LineFormat::LineFormat(const DataConfig& config, std::shared_ptr<const FeatureSchema> schema,
                       Env* env)
    : config_(config),
      schema_(std::move(schema)),
      env_(env),
      missing_(config.csv().missing().begin(), config.csv().missing().end()) {}

absl::StatusOr<FileParser> LineFormat::ParserOf(const std::string& path, bool need_label) const {
  SLUICE_ASSIGN_OR_RETURN(FileParser file, BindFile(path, need_label));
  SetFolders(config_, schema_->columns(), path, &file);
  return file;
}

absl::StatusOr<FileParser> LineFormat::ParserOfStream(const std::vector<std::string>& columns,
                                                      LineReader* reader) const {
  const std::string path = reader->text().path();
  SLUICE_ASSIGN_OR_RETURN(FileParser file, BindStream(columns, reader));
  SetFolders(config_, columns, path, &file);
  return file;
}

absl::StatusOr<std::vector<int>> LineFormat::BindWithFolders(
    const std::vector<std::string>& columns, const std::vector<std::string>& names,
    const std::string& path, bool need_label, const std::string& where,
    std::vector<bool>* has) const {
  std::vector<std::string> all = names;
  for (const auto& [name, value] : PartitionColumns(config_, path)) {
    if (std::find(names.begin(), names.end(), name) == names.end()) all.push_back(name);
  }
  SLUICE_ASSIGN_OR_RETURN(std::vector<int> bound,
                          BindColumns(columns, all, need_label, where, schema_->columns().size()));
  for (int& place : bound) {
    if (place >= static_cast<int>(names.size())) place = -1;
    has->push_back(place >= 0);
  }
  return bound;
}

absl::StatusOr<std::unique_ptr<TextReader>> OpenText(const DataConfig& config,
                                                     const std::string& path, Env* env) {
  return TextReader::Open(path, env, FormatOf(config).json);
}

absl::StatusOr<RecordRule> RecordRuleOf(const DataConfig& config) {
  if (!FormatOf(config).delimited) return RecordRule();
  auto delimited = Delimited::FromConfig(config);
  if (!delimited.ok()) return delimited.status();
  return delimited->record_rule();
}

}  // namespace sluice
