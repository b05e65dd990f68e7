// LIBSVM and LIBFFM: lines of a label and sparse values.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/config/csv_options.h"
#include "common/config/data_columns.h"
#include "model/data/file_columns.h"
#include "model/data/format_reader.h"
#include "model/data/line_format.h"
#include "model/features/cell.h"
#include "model/features/label_rule.h"

namespace sluice {
namespace {

using FirstWord = LibsvmParser::FirstWord;

constexpr uint64_t kLabelBytes = 64 << 10;  // of a file that tell how it writes labels

class LibsvmFormat final : public LineFormat {
 public:
  LibsvmFormat(const DataConfig& config, std::shared_ptr<const FeatureSchema> schema, Env* env)
      : LineFormat(config, std::move(schema), env) {}

  bool reads_first_lines() const override { return true; }

 protected:
  absl::StatusOr<FileParser> BindFile(const std::string& path, bool need_label) const override {
    if (!need_label) return Unlabelled(schema_->columns());
    SLUICE_ASSIGN_OR_RETURN(const FirstWord first, FirstWordOf(path));
    FileParser file;
    file.make = [this, first] {
      return std::make_unique<LibsvmParser>(schema_->columns(), missing_, first);
    };
    return file;
  }
  absl::StatusOr<FileParser> BindStream(const std::vector<std::string>& columns,
                                        LineReader*) const override {
    return Unlabelled(columns);
  }

 private:
  static constexpr size_t kKeptFiles = 4096;

  // The parser of a file whose lines may lack their labels.
  absl::StatusOr<FileParser> Unlabelled(const std::vector<std::string>& columns) const;
  absl::StatusOr<LibsvmParser::IsLabel> IsLabel() const;
  // Reads the first lines of the file once, as long as the file stays the same.
  absl::StatusOr<FirstWord> FirstWordOf(const std::string& path) const;
  absl::StatusOr<FirstWord> ReadFirstWord(const std::string& path) const;

  mutable Mutex mutex_;
  // By path.
  mutable absl::flat_hash_map<std::string, std::pair<FileIdentity, FirstWord>> first_words_
      ABSL_GUARDED_BY(mutex_);
};

absl::StatusOr<LibsvmParser::IsLabel> LibsvmFormat::IsLabel() const {
  SLUICE_ASSIGN_OR_RETURN(LabelRule rule, LabelRule::Create(config_));
  return [rule = std::move(rule)](std::string_view cell) {
    float label;
    int value_index;
    return rule.Apply(cell, &label, &value_index).ok();
  };
}

absl::StatusOr<FileParser> LibsvmFormat::Unlabelled(const std::vector<std::string>& columns) const {
  SLUICE_ASSIGN_OR_RETURN(const LibsvmParser::IsLabel is_label, IsLabel());
  FileParser file;
  file.make = [this, columns] {
    return std::make_unique<LibsvmParser>(columns, missing_, FirstWord::kFeature);
  };
  file.make_other = [this, columns, is_label] {
    return std::make_unique<LibsvmParser>(columns, missing_, FirstWord::kLabelByRule, is_label);
  };
  file.vote = [is_label](std::string* line) {
    return LibsvmParser::SuggestsLabels(*line, is_label);
  };
  return file;
}

absl::StatusOr<FirstWord> LibsvmFormat::FirstWordOf(const std::string& path) const {
  SLUICE_ASSIGN_OR_RETURN(const FileIdentity identity, IdentifyFile(path, env_));
  {
    MutexLock lock(&mutex_);
    const auto known = first_words_.find(path);
    if (known != first_words_.end() && known->second.first == identity) return known->second.second;
  }
  // Without the lock. Two threads may read the same lines, with the same result.
  SLUICE_ASSIGN_OR_RETURN(const FirstWord first, ReadFirstWord(path));
  MutexLock lock(&mutex_);
  if (first_words_.size() >= kKeptFiles) first_words_.clear();
  first_words_[path] = {identity, first};
  return first;
}

absl::StatusOr<FirstWord> LibsvmFormat::ReadFirstWord(const std::string& path) const {
  SLUICE_ASSIGN_OR_RETURN(const LibsvmParser::IsLabel is_label, IsLabel());
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<TextReader> text, OpenText(config_, path, env_));
  LineReader reader(std::move(text));
  reader.ExpectEnd(kLabelBytes);
  LibsvmLabels labels(is_label);
  const LibsvmParser skips(schema_->columns(), {}, FirstWord::kLabel);
  LineReader::Line line;
  for (uint64_t number = 1; reader.next_offset() < kLabelBytes; ++number) {
    SLUICE_ASSIGN_OR_RETURN(const bool more, reader.Next(&line));
    if (!more) break;
    RemoveByteOrderMark(&line);
    if (!line.too_long && !skips.Skips(line.text())) labels.Add(line.text(), number);
  }
  auto first = labels.Decide();
  if (first.ok()) return first;
  return absl::InvalidArgumentError(
      absl::StrCat("data file ", path, ": ", first.status().message()));
}

bool IsIndex(const std::string& name) {
  return !name.empty() &&
         std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// `other`: the one column of lines that is no number; "" for none.
absl::Status CheckNumbers(const DataConfig& config, const FeatureSchema& schema,
                          const std::string& other, const char* numbered_by) {
  const std::vector<std::string> folders = FolderColumns(config);
  for (size_t i = kWeightColumn; i < schema.columns().size(); ++i) {
    const std::string& name = schema.columns()[i];
    if ((i == kWeightColumn && name.empty()) || IsIndex(name) ||
        std::find(folders.begin(), folders.end(), name) != folders.end())
      continue;
    if (!other.empty() && name == other) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("column ", QuotedCell(name), " is not an index, and ",
                     DataConfig::Format_Name(config.format()), " names its columns by their ",
                     numbered_by, "; set the feature's column, e.g. \"7\"",
                     other.empty() ? "" : ", or \"indices\" for all indices of a line"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<DataSource>> MakeLibsvmSource(
    const DataConfig& config, std::shared_ptr<const FeatureSchema> schema, Env* env) {
  SLUICE_RETURN_IF_ERROR(CheckNoCsvOptions(config));
  SLUICE_RETURN_IF_ERROR(CheckNumbers(config, *schema, LibsvmParser::kAllIndices, "index"));
  return MakeLineSource(std::make_unique<LibsvmFormat>(config, std::move(schema), env));
}

absl::StatusOr<std::unique_ptr<DataSource>> MakeLibffmSource(
    const DataConfig& config, std::shared_ptr<const FeatureSchema> schema, Env* env) {
  SLUICE_RETURN_IF_ERROR(CheckNoCsvOptions(config));
  SLUICE_RETURN_IF_ERROR(CheckNumbers(config, *schema, "", "field"));
  // A line tells by itself whether it has a label.
  return MakeLineSource(
      std::make_unique<UniformLineFormat<LibffmParser>>(config, std::move(schema), env));
}

}  // namespace

FormatReader ReadLibsvm() { return {&MakeLibsvmSource, nullptr}; }
FormatReader ReadLibffm() { return {&MakeLibffmSource, nullptr}; }

}  // namespace sluice
