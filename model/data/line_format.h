// A format of text files whose examples are lines: how the lines of each file are parsed, and where
// its examples begin. MakeLineSource makes a DataSource of it, which does the rest: pieces,
// offsets, bad lines, streams.
//
// Thread safety: safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "model/data/data_source.h"
#include "model/data/line_parser.h"
#include "model/data/line_reader.h"
#include "model/data/record_rule.h"
#include "model/features/feature_schema.h"
#include "proto/config.pb.h"

namespace sluice {

// How the lines of one file are parsed, and where its examples begin.
struct FileParser {
  // With the constants, which the parser borrows.
  std::unique_ptr<LineParser> Make() const {
    std::unique_ptr<LineParser> parser = make();
    if (!constants.empty()) parser->SetConstants(&constants);
    return parser;
  }

  std::function<std::unique_ptr<LineParser>()> make;  // a parser for one thread
  uint64_t examples_begin = 0;                        // after the header line
  uint64_t header_lines = 0;                          // the header line and all lines before it
  size_t cells = 0;                                   // of an example; 0: none, or not delimited
  // The columns that the file itself has, where it has the same in all lines; else empty.
  std::vector<bool> has;
  // The columns of the folders (partition_folders.h) that it does not have.
  std::vector<LineParser::Constant> constants;
  // Set where lines may lack their label, and only the other lines of the file tell whether they
  // do: the parser for the other case than that of `make`, and what a line says: 1 for it, -1
  // against it, 0 nothing. `vote` may change the line.
  std::function<std::unique_ptr<LineParser>()> make_other;
  std::function<int(std::string* line)> vote;
};

class LineFormat {
 public:
  LineFormat(const DataConfig& config, std::shared_ptr<const FeatureSchema> schema, Env* env);
  virtual ~LineFormat() = default;

  // Where the records of a text end, apart from the number of their cells.
  virtual RecordRule record_rule() const { return {}; }
  // Whether ParserOf reads the first lines of a file, and so tells whether the file has what the
  // job needs.
  virtual bool reads_first_lines() const { return false; }
  // The parser of the file at `path`.
  absl::StatusOr<FileParser> ParserOf(const std::string& path, bool need_label) const;
  // The parser of a text whose lines may lack their label. `columns` begin with those of the
  // schema. `reader` is at the beginning of the text, and afterwards at its first example.
  absl::StatusOr<FileParser> ParserOfStream(const std::vector<std::string>& columns,
                                            LineReader* reader) const;

  const DataConfig& config() const { return config_; }
  const std::shared_ptr<const FeatureSchema>& schema() const { return schema_; }
  Env* env() const { return env_; }

 protected:
  // The same without the constants.
  virtual absl::StatusOr<FileParser> BindFile(const std::string& path, bool need_label) const = 0;
  virtual absl::StatusOr<FileParser> BindStream(const std::vector<std::string>& columns,
                                                LineReader* reader) const = 0;
  // BindColumns for a file that has the columns `names` and, besides, those of its folders, whose
  // places are -1. Also sets `has`.
  absl::StatusOr<std::vector<int>> BindWithFolders(const std::vector<std::string>& columns,
                                                   const std::vector<std::string>& names,
                                                   const std::string& path, bool need_label,
                                                   const std::string& where,
                                                   std::vector<bool>* has) const;

  const DataConfig config_;
  const std::shared_ptr<const FeatureSchema> schema_;
  Env* const env_;
  const std::vector<std::string> missing_;  // csv.missing
};

// A format whose lines `Parser` reads, with the columns that the job uses. No file has a header.
template <typename Parser>
class UniformLineFormat final : public LineFormat {
 public:
  using LineFormat::LineFormat;

 protected:
  absl::StatusOr<FileParser> BindFile(const std::string&, bool) const override {
    return BindStream(schema_->columns(), nullptr);
  }
  absl::StatusOr<FileParser> BindStream(const std::vector<std::string>& columns,
                                        LineReader*) const override {
    FileParser file;
    file.make = [columns] { return std::make_unique<Parser>(columns); };
    return file;
  }
};

std::unique_ptr<DataSource> MakeLineSource(std::unique_ptr<LineFormat> format);

// Opens a file for the lines of this format.
absl::StatusOr<std::unique_ptr<TextReader>> OpenText(const DataConfig& config,
                                                     const std::string& path, Env* env);

// The rule for the line ends inside of records. INVALID_ARGUMENT names a wrong option of data.csv.
absl::StatusOr<RecordRule> RecordRuleOf(const DataConfig& config);

}  // namespace sluice
