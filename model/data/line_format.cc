#include "model/data/line_format.h"

#include "common/config/data_format.h"
#include "model/data/format_reader.h"
#include "model/data/text_reader.h"

namespace sluice {

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
