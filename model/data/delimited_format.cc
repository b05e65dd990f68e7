// CSV, TSV and CRITEO_TSV: lines of cells between delimiters.
#include <optional>

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

namespace sluice {
namespace {

constexpr char kHeaderNames[] = "the header of the file names";

// The header line of a file, bound to the schema's columns.
struct Header {
  FileIdentity identity;
  std::vector<int> cell_of_column;
  std::vector<bool> has;  // FileParser::has
  size_t cells = 0;
  uint64_t examples_begin = 0;  // after the header line
  uint64_t lines = 0;           // the header line and all lines before it
  std::string text;
};

// The places of the columns in lines that lack the label.
std::vector<int> WithoutLabel(std::vector<int> cell_of_column) {
  const int label = std::exchange(cell_of_column[kLabelColumn], -1);
  for (int& cell : cell_of_column) cell -= cell > label;
  return cell_of_column;
}

class DelimitedFormat final : public LineFormat {
 public:
  // `named_by`: what names the columns of files without a header.
  DelimitedFormat(const DataConfig& config, std::shared_ptr<const FeatureSchema> schema, Env* env,
                  Delimited delimited, std::string named_by)
      : LineFormat(config, std::move(schema), env),
        delimited_(std::move(delimited)),
        named_by_(std::move(named_by)) {}

  RecordRule record_rule() const override { return delimited_.record_rule(); }
  bool reads_first_lines() const override { return config_.csv().header(); }

 protected:
  absl::StatusOr<FileParser> BindFile(const std::string& path, bool need_label) const override;
  absl::StatusOr<FileParser> BindStream(const std::vector<std::string>& columns,
                                        LineReader* reader) const override;

 private:
  static constexpr size_t kKeptHeaders = 4096;

  // Reads the header of a file once, as long as the file stays the same.
  absl::StatusOr<Header> HeaderOf(const std::string& path, bool need_label) const;
  absl::StatusOr<Header> ReadHeader(const std::string& path, bool need_label) const;
  // The parser of lines with the columns `names`, of the file at `path` with or without a header.
  absl::StatusOr<FileParser> Bind(const std::vector<std::string>& columns,
                                  const std::vector<std::string>& names, const std::string& path,
                                  const std::string& where, bool need_label,
                                  const std::string& header_text) const;

  const Delimited delimited_;
  const std::string named_by_;
  mutable Mutex mutex_;
  // By path and whether labels are needed.
  mutable absl::flat_hash_map<std::pair<std::string, bool>, Header> headers_
      ABSL_GUARDED_BY(mutex_);
};

absl::StatusOr<Header> DelimitedFormat::ReadHeader(const std::string& path, bool need_label) const {
  Header header;
  SLUICE_ASSIGN_OR_RETURN(header.identity, IdentifyFile(path, env_));
  SLUICE_ASSIGN_OR_RETURN(const HeaderLine line, ReadHeaderLine(delimited_, path, env_));
  header.cells = line.names.size();
  header.examples_begin = line.end;
  header.lines = line.lines;
  header.text = line.text;
  if (line.names.empty()) {
    // An empty file has no header and no examples.
    header.cell_of_column.assign(schema_->columns().size(), -1);
    return header;
  }
  SLUICE_ASSIGN_OR_RETURN(header.cell_of_column,
                          BindWithFolders(schema_->columns(), line.names, path, need_label,
                                          absl::StrCat("data file ", path), &header.has));
  return header;
}

absl::StatusOr<Header> DelimitedFormat::HeaderOf(const std::string& path, bool need_label) const {
  SLUICE_ASSIGN_OR_RETURN(const FileIdentity identity, IdentifyFile(path, env_));
  const std::pair<std::string, bool> key(path, need_label);
  {
    MutexLock lock(&mutex_);
    const auto known = headers_.find(key);
    // Another file may have taken the path, with other columns.
    if (known != headers_.end() && known->second.identity == identity) return known->second;
  }
  // Without the lock. Two threads may read the same header, with the same result.
  SLUICE_ASSIGN_OR_RETURN(Header header, ReadHeader(path, need_label));
  MutexLock lock(&mutex_);
  // A bound is enough: reading a header again is cheap.
  if (headers_.size() >= kKeptHeaders) headers_.clear();
  headers_[key] = header;
  return header;
}

absl::StatusOr<FileParser> DelimitedFormat::BindFile(const std::string& path,
                                                     bool need_label) const {
  if (!config_.csv().header())
    return Bind(schema_->columns(), NamedColumns(config_), path, "the format", need_label, "");
  SLUICE_ASSIGN_OR_RETURN(Header header, HeaderOf(path, need_label));
  FileParser file;
  file.has = header.has;
  file.examples_begin = header.examples_begin;
  file.header_lines = header.lines;
  file.cells = header.cells;
  file.make = [this, header = std::move(header)] {
    return std::make_unique<DelimitedParser>(delimited_, header.cell_of_column, header.cells,
                                             DelimitedParser::Expected{kHeaderNames, ""},
                                             header.text);
  };
  return file;
}

absl::StatusOr<FileParser> DelimitedFormat::BindStream(const std::vector<std::string>& columns,
                                                       LineReader* reader) const {
  const std::string& path = reader->text().path();
  if (!config_.csv().header())
    return Bind(columns, NamedColumns(config_), path, "the format", /*need_label=*/false, "");
  SLUICE_ASSIGN_OR_RETURN(const HeaderLine header, ReadHeaderLine(delimited_, reader));
  SLUICE_ASSIGN_OR_RETURN(FileParser file,
                          Bind(columns, header.names, path, absl::StrCat("data file ", path),
                               /*need_label=*/false, header.text));
  file.examples_begin = header.end;
  file.header_lines = header.lines;
  return file;
}

absl::StatusOr<FileParser> DelimitedFormat::Bind(const std::vector<std::string>& columns,
                                                 const std::vector<std::string>& names,
                                                 const std::string& path, const std::string& where,
                                                 bool need_label,
                                                 const std::string& header_text) const {
  FileParser file;
  DelimitedParser::Expected expected;
  expected.named_by = config_.csv().header() ? kHeaderNames : named_by_;
  std::vector<int> bound(columns.size(), -1);
  if (!names.empty()) {  // an empty file has no header and no examples
    SLUICE_ASSIGN_OR_RETURN(bound,
                            BindWithFolders(columns, names, path, need_label, where, &file.has));
  }
  file.cells = names.size();
  // Without a header only the number of its cells says that a line has no label.
  if (!need_label && !config_.csv().header() && bound[kLabelColumn] >= 0) {
    expected.one_is_missing = absl::StrCat(
        " (column ", QuotedCell(columns[kLabelColumn]), ", number ", bound[kLabelColumn] + 1,
        ", is the label; it may be left out, but of all lines of a file)");
    file.make_other = [this, bound = WithoutLabel(bound), cells = names.size() - 1] {
      return std::make_unique<DelimitedParser>(
          delimited_, bound, cells,
          DelimitedParser::Expected{"without the label, as in its first lines, the file has", ""});
    };
    file.vote = [this, cells = names.size()](std::string* line) {
      std::vector<std::string_view> none;
      const auto count = delimited_.Split(line->data(), line->size(), &none);
      if (!count.ok()) return 0;
      return *count + 1 == cells ? 1 : *count == cells ? -1 : 0;
    };
  }
  file.make = [this, bound, cells = names.size(), expected, header_text] {
    return std::make_unique<DelimitedParser>(delimited_, bound, cells, expected, header_text);
  };
  return file;
}

absl::StatusOr<std::unique_ptr<DataSource>> MakeCsvSource(
    const DataConfig& config, std::shared_ptr<const FeatureSchema> schema, Env* env) {
  SLUICE_ASSIGN_OR_RETURN(Delimited delimited, Delimited::FromConfig(config));
  const CsvFormat& csv = config.csv();
  // Exactly one of the two: with both, they could contradict each other.
  if (csv.header() == (csv.columns_size() > 0)) {
    return absl::InvalidArgumentError(
        csv.header()
            ? "data.csv has both header and columns; keep one of them"
            : "data.csv has neither header nor columns; set header: true or list the columns");
  }
  if (!csv.header()) {
    SLUICE_RETURN_IF_ERROR(
        BindColumns(schema->columns(), NamedOrFolderColumns(config), true, "data.csv.columns")
            .status());
  }
  return MakeLineSource(std::make_unique<DelimitedFormat>(
      config, std::move(schema), env, std::move(delimited), "data.csv.columns of the job names"));
}

absl::StatusOr<std::unique_ptr<DataSource>> MakeCriteoSource(
    const DataConfig& config, std::shared_ptr<const FeatureSchema> schema, Env* env) {
  SLUICE_RETURN_IF_ERROR(CheckNoCsvOptions(config));
  SLUICE_RETURN_IF_ERROR(
      BindColumns(schema->columns(), NamedOrFolderColumns(config), true, "format CRITEO_TSV")
          .status());
  Delimited delimited = Delimited::Criteo();
  delimited.missing.assign(config.csv().missing().begin(), config.csv().missing().end());
  return MakeLineSource(std::make_unique<DelimitedFormat>(
      config, std::move(schema), env, std::move(delimited), "the format CRITEO_TSV has"));
}

absl::StatusOr<std::vector<std::string>> ColumnsInHeader(const DataConfig& config,
                                                         const std::string& path, Env* env) {
  SLUICE_ASSIGN_OR_RETURN(const Delimited cut, Delimited::FromConfig(config));
  SLUICE_ASSIGN_OR_RETURN(HeaderLine header, ReadHeaderLine(cut, path, env));
  return std::move(header.names);
}

}  // namespace

FormatReader ReadCsv() { return {&MakeCsvSource, &ColumnsInHeader}; }
FormatReader ReadTsv() { return ReadCsv(); }
FormatReader ReadCriteoTsv() { return {&MakeCriteoSource, nullptr}; }

}  // namespace sluice
