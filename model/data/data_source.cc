#include "model/data/data_source.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/config/csv_options.h"
#include "common/config/data_columns.h"
#include "model/data/file_columns.h"
#include "model/data/line_parser.h"
#include "model/data/line_reader.h"
#include "model/data/multi_slot_parser.h"
#include "model/features/cell.h"
#include "model/features/data_summary.h"
#include "model/features/label_rule.h"

namespace sluice {
namespace {

constexpr char kHeaderNames[] = "the header of the file names";
constexpr size_t kCountBytes = 256 << 10;   // read at once to count lines
constexpr uint64_t kLabelBytes = 64 << 10;  // of a LIBSVM file that tell how it writes labels

// Whether the line is blank or a comment. Removes a byte order mark from the line.
bool NoExample(const LineParser& parser, LineReader::Line* line) {
  RemoveByteOrderMark(line);
  return !line->too_long && parser.Skips(line->text());
}

// The header line of a file, bound to the schema's columns.
struct Header {
  FileIdentity identity;
  std::vector<int> cell_of_column;
  size_t cells = 0;
  uint64_t examples_begin = 0;  // after the header line
  std::string text;
};

// How the lines of one file are parsed, and where its examples begin.
struct FileParser {
  std::function<std::unique_ptr<LineParser>()> make;  // a parser for one thread
  uint64_t examples_begin = 0;                        // after the header line
  uint64_t header_lines = 0;                          // the header line and all lines before it
  size_t cells = 0;                                   // of an example; 0: none, or not delimited
  // Set where lines may lack their label, and only the other lines of the file tell whether they
  // do: the parser for the other case than that of `make`, and what a line says: 1 for it, -1
  // against it, 0 nothing. `vote` may change the line.
  std::function<std::unique_ptr<LineParser>()> make_other;
  std::function<int(std::string* line)> vote;
};

// The places of the columns in lines that lack the label.
std::vector<int> WithoutLabel(std::vector<int> cell_of_column) {
  const int label = std::exchange(cell_of_column[kLabelColumn], -1);
  for (int& cell : cell_of_column) cell -= cell > label;
  return cell_of_column;
}

// Problems of the lines of a beginning, on their way to `problem`. Those of the first line wait for
// the second: where only the first is wrong, and names stand in it for numbers, it is a header.
class BeginningProblems {
 public:
  BeginningProblems(const DataConfig& data, size_t numerics, const DataSource::LineProblem& problem)
      : data_(data), numerics_(numerics), problem_(problem) {}

  // The line `number` has these problems. `parser` has its values when it is `parsed`.
  void Add(uint64_t number, std::vector<absl::Status> problems, bool parsed,
           const LineParser& parser) {
    if (lines_++ == 0 && parsed && MayBeHeader(problems.size(), parser)) {
      held_number_ = number;
      held_ = std::move(problems);
      return;
    }
    Release();
    for (const absl::Status& why : problems) problem_(number, why);
  }
  void AddExample(uint64_t number, const LineParser& parser) {
    if (++lines_ == 2 && !held_.empty()) {
      const bool criteo = data_.format() == DataConfig::CRITEO_TSV;
      held_ = {absl::InvalidArgumentError(
          absl::StrCat("the line looks like a header: remove it, or set data.",
                       criteo ? "format to TSV with csv.header: true"
                              : "csv.header: true in place of columns"))};
    }
    Release();
    if (data_.format() == DataConfig::LIBSVM) CheckSign(number, parser);
  }
  // Passes on what waits.
  void Release() {
    for (const absl::Status& why : std::exchange(held_, {})) problem_(held_number_, why);
  }

 private:
  bool MayBeHeader(size_t problems, const LineParser& parser) const {
    const bool named = data_.format() == DataConfig::CSV || data_.format() == DataConfig::TSV ||
                       data_.format() == DataConfig::CRITEO_TSV;
    if (!named || data_.csv().header()) return false;
    const std::string_view label = parser.values()[kLabelColumn];
    double number;
    if (label.empty() || ParseNumber(label, &number)) return false;
    return 2 * problems > numerics_ + 1;
  }

  // Where -1 means label 0, a label 0 may mean that the label is not known.
  void CheckSign(uint64_t number, const LineParser& parser) {
    if (data_.label().positive_size() > 0 || data_.label().has_positive_at_least()) return;
    double label;
    if (!ParseNumber(parser.values()[kLabelColumn], &label) || label > 0) return;
    uint64_t* const own = label < 0 ? &minus_ : &zero_;
    const uint64_t other = label < 0 ? zero_ : minus_;
    if (*own == 0) *own = number;
    if (other == 0) return;
    problem_(number, absl::InvalidArgumentError(absl::StrCat(
                         "label ", label < 0 ? "-1" : "0", ", but line ", other, " has label ",
                         label < 0 ? "0" : "-1",
                         "; the labels of LIBSVM are 0 and 1, or -1 and 1: correct them, or set "
                         "data.label.positive: \"1\" if both mean 0")));
  }

  const DataConfig& data_;
  const size_t numerics_;
  const DataSource::LineProblem& problem_;
  uint64_t lines_ = 0;
  uint64_t held_number_ = 0;
  std::vector<absl::Status> held_;
  uint64_t zero_ = 0, minus_ = 0;  // the first lines with labels 0 and -1
};

class FileDataSource : public DataSource {
 public:
  FileDataSource(DataConfig config, std::shared_ptr<const FeatureSchema> schema,
                 Delimited delimited, Env* env)
      : DataSource(env),
        config_(std::move(config)),
        schema_(std::move(schema)),
        delimited_(std::move(delimited)),
        missing_(config_.csv().missing().begin(), config_.csv().missing().end()) {}

  absl::Status CheckColumns(const std::string& path, bool need_label) const override;
  absl::StatusOr<Beginning> CheckBeginning(const std::string& path, uint64_t bytes, uint64_t lines,
                                           const LineProblem& problem) const override;
  absl::StatusOr<uint64_t> TextBytes(const std::string& path) const override;
  absl::StatusOr<std::vector<uint64_t>> CountLines(const std::string& path, uint64_t begin,
                                                   uint64_t end,
                                                   uint64_t piece_bytes) const override;
  absl::Status ReadPiece(const std::string& path, uint64_t begin, uint64_t end, bool need_label,
                         Batch* examples, BadLines* bad) const override;
  absl::Status ReadPieces(const std::string& path, absl::Span<const TextRange> pieces,
                          bool need_label, Batch* examples, BadLines* bad) const override;
  absl::StatusOr<std::unique_ptr<ExampleStream>> OpenStream(
      const ExampleStream::Options& options) const override;

 private:
  class Stream;
  static constexpr size_t kKeptReaders = 8;
  static constexpr size_t kKeptHeaders = 4096;
  static constexpr size_t kKeptStarts = 1 << 16;

  absl::Status ReadLines(const std::string& path, absl::Span<const TextRange> pieces,
                         bool need_label, Batch* examples, BadLines* bad) const;
  // Reads up to the end of `piece`. `reader` is at its beginning.
  absl::Status ReadLinesOf(const TextRange& piece, bool need_label, LineReader* reader,
                           LineParser* parser, Batch* examples, BadLines* bad) const;
  absl::StatusOr<FileParser> ParserOf(const std::string& path, bool need_label) const;
  // The parser of a LIBSVM file whose lines must have labels, and that of one whose may lack them.
  absl::StatusOr<FileParser> LabelledParser(const std::string& path) const;
  absl::StatusOr<FileParser> UnlabelledParser(const std::vector<std::string>& columns) const;
  absl::StatusOr<LibsvmParser::IsLabel> IsLabel() const;
  // Reads the first lines of the file once, as long as the file stays the same.
  absl::StatusOr<LibsvmParser::FirstWord> FirstWordOf(const std::string& path) const;
  // `columns` begin with those of the schema. `reader` is at the beginning of the text and reads
  // its header when the format has one. LIBSVM: lines may lack their label.
  absl::StatusOr<FileParser> ParserOf(const std::vector<std::string>& columns, bool need_label,
                                      LineReader* reader) const;
  // Reads the header of a file once, as long as the file stays the same.
  absl::StatusOr<Header> HeaderOf(const std::string& path, bool need_label) const;
  absl::StatusOr<Header> ReadHeader(const std::string& path, bool need_label) const;
  // A reader at the first example of `file`, which is at `path`, that starts at or after `begin`,
  // for those that start before `end`.
  absl::StatusOr<std::unique_ptr<LineReader>> ReaderAt(const std::string& path,
                                                       const FileParser& file, uint64_t begin,
                                                       uint64_t end) const;
  // Moves the reader to the first line that starts at or after `begin`.
  absl::Status SeekTo(uint64_t begin, uint64_t start, LineReader* reader) const;
  // Where lines are joined, remembers the start of the first line at or after a border of pieces,
  // which the next piece would have to look for.
  void RememberStart(const LineReader& reader, uint64_t border, uint64_t start) const;
  std::optional<uint64_t> KnownStart(const std::string& path, const FileIdentity& identity,
                                     uint64_t border) const;
  std::unique_ptr<LineReader> TakeKept(const FileIdentity& identity, const std::string& path,
                                       uint64_t begin) const;
  // Keeps a reader of compressed text, so that a later piece need not decompress everything before
  // it again.
  void Keep(std::unique_ptr<LineReader> reader) const;
  // The number, from 1, of the line that starts at `offset`. Each part of the text is read once as
  // long as offsets ascend within one file.
  absl::StatusOr<uint64_t> LineNumberAt(const FileIdentity& identity, const std::string& path,
                                        uint64_t offset) const;
  // "path:line"; "path@offset" when the file can no longer be read.
  std::string NameLine(const LineReader& reader, uint64_t offset) const;
  // Sets *bad_line for a bad line; a returned error ends the piece. Sets *parsed when the parser
  // has the line's values.
  absl::Status AppendLine(LineParser* parser, const LineReader::Line& line, bool need_label,
                          Batch* examples, absl::Status* bad_line, bool* parsed = nullptr) const;

  const DataConfig config_;
  const std::shared_ptr<const FeatureSchema> schema_;
  const Delimited delimited_;
  const std::vector<std::string> missing_;
  mutable Mutex mutex_;
  mutable std::vector<std::unique_ptr<LineReader>> kept_ ABSL_GUARDED_BY(mutex_);  // oldest first
  // The lines before `offset` in the file that was asked for last.
  struct CountedLines {
    std::string path;
    FileIdentity identity;
    uint64_t offset = 0, lines = 0;
  };
  mutable CountedLines counted_ ABSL_GUARDED_BY(mutex_);
  // The first lines after borders of pieces, by file; dropped when there are too many.
  struct Starts {
    FileIdentity identity;
    absl::flat_hash_map<uint64_t, uint64_t> by_border;
  };
  mutable absl::flat_hash_map<std::string, Starts> starts_ ABSL_GUARDED_BY(mutex_);
  mutable size_t num_starts_ ABSL_GUARDED_BY(mutex_) = 0;
  // By path.
  mutable absl::flat_hash_map<std::string, std::pair<FileIdentity, LibsvmParser::FirstWord>>
      first_words_ ABSL_GUARDED_BY(mutex_);
  // By path and whether labels are needed.
  mutable absl::flat_hash_map<std::pair<std::string, bool>, Header> headers_
      ABSL_GUARDED_BY(mutex_);
};

absl::StatusOr<uint64_t> FileDataSource::TextBytes(const std::string& path) const {
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<TextReader> text, TextReader::Open(path, env_));
  const absl::Status skipped = text->SkipTo(UINT64_MAX);
  // Report a change before an error of the text: a file that is being written often looks damaged.
  SLUICE_RETURN_IF_ERROR(CheckUnchanged(path));
  SLUICE_RETURN_IF_ERROR(skipped);
  return text->offset();
}

absl::Status FileDataSource::CheckColumns(const std::string& path, bool need_label) const {
  if (config_.csv().header() || config_.format() == DataConfig::LIBSVM)
    return ParserOf(path, need_label).status();
  // Without a header the first bytes still tell a file that is no text.
  return TextReader::Open(path, env_).status();
}

absl::StatusOr<DataSource::Beginning> FileDataSource::CheckBeginning(
    const std::string& path, uint64_t bytes, uint64_t lines, const LineProblem& problem) const {
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<TextReader> text, TextReader::Open(path, env_));
  LineReader reader(std::move(text), delimited_.record_rule());
  SLUICE_ASSIGN_OR_RETURN(const FileParser file,
                          config_.format() == DataConfig::LIBSVM
                              ? LabelledParser(path)
                              : ParserOf(schema_->columns(), /*need_label=*/true, &reader));
  reader.ExpectCells(file.cells, file.cells);
  reader.ExpectEnd(bytes);
  const std::unique_ptr<LineParser> parser = file.make();
  Beginning beginning;
  Batch examples;
  examples.Reset(schema_->numerics().size(), schema_->slots().size());
  LineReader::Line line;
  BeginningProblems problems(config_, schema_->numerics().size(), problem);
  uint64_t number = file.header_lines + 1, next_number = number;
  while (reader.next_offset() < bytes && beginning.lines < lines) {
    SLUICE_ASSIGN_OR_RETURN(const bool more, reader.Next(&line));
    if (!more) {
      beginning.whole = true;
      break;
    }
    number = std::exchange(next_number, next_number + line.line_ends);
    if (NoExample(*parser, &line)) continue;
    ++beginning.lines;
    absl::Status bad_line;
    bool parsed = false;
    SLUICE_RETURN_IF_ERROR(
        AppendLine(parser.get(), line, /*need_label=*/true, &examples, &bad_line, &parsed));
    if (bad_line.ok()) {
      problems.AddExample(number, *parser);
      continue;
    }
    std::vector<absl::Status> of_line;
    if (parsed) of_line = schema_->FindProblems(parser->values(), parser->missing());
    if (of_line.empty()) of_line.push_back(bad_line);
    problems.Add(number, std::move(of_line), parsed, *parser);
  }
  problems.Release();
  for (size_t i = 0; i < examples.n; ++i) {
    beginning.positive += examples.label[i] == 1;
    beginning.weighted += examples.weight[i] != 0;
  }
  // A file that ends just at a bound is whole as well, also with blank lines at its end.
  while (!beginning.whole) {
    const absl::StatusOr<bool> more = reader.Next(&line);
    if (!more.ok()) break;
    beginning.whole = !*more;
    if (*more && (!NoExample(*parser, &line) || reader.next_offset() >= bytes)) break;
  }
  return beginning;
}

absl::StatusOr<Header> FileDataSource::ReadHeader(const std::string& path, bool need_label) const {
  Header header;
  SLUICE_ASSIGN_OR_RETURN(header.identity, IdentifyFile(path, env_));
  SLUICE_ASSIGN_OR_RETURN(const HeaderLine line, ReadHeaderLine(delimited_, path, env_));
  header.cells = line.names.size();
  header.examples_begin = line.end;
  header.text = line.text;
  if (line.names.empty()) {
    // An empty file has no header and no examples.
    header.cell_of_column.assign(schema_->columns().size(), -1);
    return header;
  }
  SLUICE_ASSIGN_OR_RETURN(
      header.cell_of_column,
      BindColumns(schema_->columns(), line.names, need_label, absl::StrCat("data file ", path)));
  return header;
}

absl::StatusOr<Header> FileDataSource::HeaderOf(const std::string& path, bool need_label) const {
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

absl::StatusOr<FileParser> FileDataSource::ParserOf(const std::string& path,
                                                    bool need_label) const {
  if (config_.format() == DataConfig::LIBSVM && need_label) return LabelledParser(path);
  if (!config_.csv().header()) return ParserOf(schema_->columns(), need_label, nullptr);
  SLUICE_ASSIGN_OR_RETURN(Header header, HeaderOf(path, need_label));
  FileParser file;
  file.examples_begin = header.examples_begin;
  file.cells = header.cells;
  file.make = [this, header = std::move(header)] {
    return std::make_unique<DelimitedParser>(delimited_, header.cell_of_column, header.cells,
                                             DelimitedParser::Expected{kHeaderNames, ""},
                                             header.text);
  };
  return file;
}

absl::StatusOr<LibsvmParser::IsLabel> FileDataSource::IsLabel() const {
  SLUICE_ASSIGN_OR_RETURN(LabelRule rule, LabelRule::Create(config_));
  return [rule = std::move(rule)](std::string_view cell) {
    float label;
    int value_index;
    return rule.Apply(cell, &label, &value_index).ok();
  };
}

absl::StatusOr<FileParser> FileDataSource::LabelledParser(const std::string& path) const {
  SLUICE_ASSIGN_OR_RETURN(const LibsvmParser::FirstWord first, FirstWordOf(path));
  FileParser file;
  file.make = [this, first] {
    return std::make_unique<LibsvmParser>(schema_->columns(), missing_, first);
  };
  return file;
}

absl::StatusOr<FileParser> FileDataSource::UnlabelledParser(
    const std::vector<std::string>& columns) const {
  using FirstWord = LibsvmParser::FirstWord;
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

absl::StatusOr<LibsvmParser::FirstWord> FileDataSource::FirstWordOf(const std::string& path) const {
  SLUICE_ASSIGN_OR_RETURN(const FileIdentity identity, IdentifyFile(path, env_));
  {
    MutexLock lock(&mutex_);
    const auto known = first_words_.find(path);
    if (known != first_words_.end() && known->second.first == identity) return known->second.second;
  }
  // Without the lock, as HeaderOf.
  SLUICE_ASSIGN_OR_RETURN(const LibsvmParser::IsLabel is_label, IsLabel());
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<TextReader> text, TextReader::Open(path, env_));
  LineReader reader(std::move(text));
  reader.ExpectEnd(kLabelBytes);
  LibsvmLabels labels(is_label);
  const LibsvmParser skips(schema_->columns(), {}, LibsvmParser::FirstWord::kLabel);
  LineReader::Line line;
  for (uint64_t number = 1; reader.next_offset() < kLabelBytes; ++number) {
    SLUICE_ASSIGN_OR_RETURN(const bool more, reader.Next(&line));
    if (!more) break;
    if (!NoExample(skips, &line) && !line.too_long) labels.Add(line.text(), number);
  }
  const auto first = labels.Decide();
  if (!first.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("data file ", path, ": ", first.status().message()));
  }
  MutexLock lock(&mutex_);
  if (first_words_.size() >= kKeptHeaders) first_words_.clear();
  first_words_[path] = {identity, *first};
  return *first;
}

absl::StatusOr<FileParser> FileDataSource::ParserOf(const std::vector<std::string>& columns,
                                                    bool need_label, LineReader* reader) const {
  if (config_.format() == DataConfig::LIBSVM) return UnlabelledParser(columns);
  FileParser file;
  std::vector<std::string> names = NamedColumns(config_);
  std::string header_text;
  const bool slots = config_.format() == DataConfig::MULTI_SLOT;
  std::string where = slots ? "data.slots" : "the format";
  if (config_.csv().header()) {
    SLUICE_ASSIGN_OR_RETURN(HeaderLine header, ReadHeaderLine(delimited_, reader));
    names = std::move(header.names);
    header_text = std::move(header.text);
    where = absl::StrCat("data file ", reader->text().path());
    file.examples_begin = header.end;
    file.header_lines = header.lines;
  }
  DelimitedParser::Expected expected;
  expected.named_by = config_.csv().header() ? kHeaderNames
                      : config_.format() == DataConfig::CRITEO_TSV
                          ? "the format CRITEO_TSV has"
                          : "data.csv.columns of the job names";
  std::vector<int> bound(columns.size(), -1);
  if (!names.empty()) {  // an empty file has no header and no examples
    SLUICE_ASSIGN_OR_RETURN(
        bound, BindColumns(columns, names, need_label, where, schema_->columns().size()));
  }
  if (slots) {
    file.make = [this, bound] {
      return std::make_unique<MultiSlotParser>(config_.slots(), bound, missing_);
    };
  } else {
    file.cells = names.size();
    // Without a header only the number of its cells says that a line has no label.
    if (!need_label && !config_.csv().header() && bound[kLabelColumn] >= 0) {
      expected.one_is_missing = absl::StrCat(
          " (column ", QuotedCell(columns[kLabelColumn]), ", number ", bound[kLabelColumn] + 1,
          ", is the label; it may be left out, but of all lines of a file)");
      file.make_other = [this, bound = WithoutLabel(bound), cells = names.size() - 1] {
        return std::make_unique<DelimitedParser>(
            delimited_, bound, cells,
            DelimitedParser::Expected{"without the label, as in its first lines, the file has",
                                      ""});
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
  }
  return file;
}

std::unique_ptr<LineReader> FileDataSource::TakeKept(const FileIdentity& identity,
                                                     const std::string& path,
                                                     uint64_t begin) const {
  MutexLock lock(&mutex_);
  auto best = kept_.end();
  for (auto it = kept_.begin(); it != kept_.end(); ++it) {
    const LineReader& reader = **it;
    if (reader.text().path() != path || !(reader.text().identity() == identity) ||
        !reader.CanSeek(begin))
      continue;
    // The reader that is nearest to `begin`, but not past it, skips least.
    if (best == kept_.end() || reader.next_offset() > (*best)->next_offset()) best = it;
  }
  if (best == kept_.end()) return nullptr;
  std::unique_ptr<LineReader> reader = std::move(*best);
  kept_.erase(best);
  return reader;
}

void FileDataSource::Keep(std::unique_ptr<LineReader> reader) const {
  std::unique_ptr<LineReader> dropped;  // destroyed outside of the lock
  MutexLock lock(&mutex_);
  if (kept_.size() == kKeptReaders) {
    dropped = std::move(kept_.front());
    kept_.erase(kept_.begin());
  }
  kept_.push_back(std::move(reader));
}

absl::StatusOr<std::unique_ptr<LineReader>> FileDataSource::ReaderAt(const std::string& path,
                                                                     const FileParser& file,
                                                                     uint64_t begin,
                                                                     uint64_t end) const {
  begin = std::max(begin, file.examples_begin);
  SLUICE_ASSIGN_OR_RETURN(const FileIdentity identity, IdentifyFile(path, env_));
  std::unique_ptr<LineReader> reader = TakeKept(identity, path, begin);
  if (reader == nullptr) {
    SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<TextReader> text, TextReader::Open(path, env_));
    reader = std::make_unique<LineReader>(std::move(text), delimited_.record_rule());
    reader->ExpectCells(file.cells, file.cells);
  }
  // So the reader takes little more of the file than the piece.
  reader->ExpectEnd(end);
  SLUICE_RETURN_IF_ERROR(SeekTo(begin, file.examples_begin, reader.get()));
  return reader;
}

absl::Status FileDataSource::SeekTo(uint64_t begin, uint64_t start, LineReader* reader) const {
  if (begin > reader->next_offset() && reader->joins_lines() && !reader->text().compressed()) {
    const std::optional<uint64_t> known =
        begin <= start ? start
                       : KnownStart(reader->text().path(), reader->text().identity(), begin);
    if (known) return reader->MoveTo(*known, begin);
  }
  return reader->Seek(begin);
}

void FileDataSource::RememberStart(const LineReader& reader, uint64_t border,
                                   uint64_t start) const {
  if (!reader.joins_lines() || reader.text().compressed()) return;
  MutexLock lock(&mutex_);
  if (num_starts_ >= kKeptStarts) {
    starts_.clear();
    num_starts_ = 0;
  }
  Starts& starts = starts_[reader.text().path()];
  if (!(starts.identity == reader.text().identity())) {
    num_starts_ -= starts.by_border.size();
    starts = {reader.text().identity(), {}};
  }
  num_starts_ += starts.by_border.emplace(border, start).second;
}

std::optional<uint64_t> FileDataSource::KnownStart(const std::string& path,
                                                   const FileIdentity& identity,
                                                   uint64_t border) const {
  MutexLock lock(&mutex_);
  const auto starts = starts_.find(path);
  if (starts == starts_.end() || !(starts->second.identity == identity)) return std::nullopt;
  const auto start = starts->second.by_border.find(border);
  if (start == starts->second.by_border.end()) return std::nullopt;
  return start->second;
}

absl::StatusOr<uint64_t> FileDataSource::LineNumberAt(const FileIdentity& identity,
                                                      const std::string& path,
                                                      uint64_t offset) const {
  CountedLines counted{path, identity};
  {
    MutexLock lock(&mutex_);
    if (counted_.path == path && counted_.identity == identity && counted_.offset <= offset)
      counted = counted_;
  }
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<TextReader> text, TextReader::Open(path, env_));
  // Only the text after the last call is read.
  SLUICE_RETURN_IF_ERROR(text->SkipTo(counted.offset));
  std::vector<char> buffer(kCountBytes);
  while (counted.offset < offset) {
    const size_t wanted = std::min<uint64_t>(buffer.size(), offset - counted.offset);
    SLUICE_ASSIGN_OR_RETURN(const size_t got, text->Read(buffer.data(), wanted));
    if (got == 0) return absl::DataLossError(absl::StrCat("data file ", path, " became shorter"));
    counted.offset += got;
    counted.lines += std::count(buffer.begin(), buffer.begin() + got, '\n');
  }
  // Counted from where the last call ended, since malformed lines are named in the order of the
  // file.
  const uint64_t number = counted.lines + 1;
  MutexLock lock(&mutex_);
  counted_ = std::move(counted);
  return number;
}

std::string FileDataSource::NameLine(const LineReader& reader, uint64_t offset) const {
  const std::string& path = reader.text().path();
  const auto number = LineNumberAt(reader.text().identity(), path, offset);
  return number.ok() ? absl::StrCat(path, ":", *number) : absl::StrCat(path, "@", offset);
}

absl::Status FileDataSource::AppendLine(LineParser* parser, const LineReader::Line& line,
                                        bool need_label, Batch* examples, absl::Status* bad_line,
                                        bool* parsed) const {
  if (line.too_long) {
    *bad_line = absl::InvalidArgumentError(
        absl::StrCat("the line is longer than ", LineReader::kMaxLineBytes, " bytes"));
    return absl::OkStatus();
  }
  *bad_line = parser->Parse(line.data, line.size);
  if (!bad_line->ok()) return absl::OkStatus();
  if (parsed != nullptr) *parsed = true;
  absl::Status status =
      schema_->AppendExample(parser->values(), parser->missing(), need_label, examples);
  // Other errors are not the line's, such as a batch that is full.
  if (!absl::IsInvalidArgument(status)) return status;
  *bad_line = std::move(status);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<uint64_t>> FileDataSource::CountLines(const std::string& path,
                                                                 uint64_t begin, uint64_t end,
                                                                 uint64_t piece_bytes) const {
  SLUICE_ASSIGN_OR_RETURN(const FileParser file, ParserOf(path, /*need_label=*/true));
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<LineReader> reader, ReaderAt(path, file, begin, end));
  const std::unique_ptr<LineParser> parser = file.make();
  std::vector<uint64_t> lines;
  LineReader::Line line;
  while (reader->next_offset() < end) {
    const absl::StatusOr<bool> more = reader->Next(&line);
    // Report a change before an error of the text, as ReadPiece does.
    if (!more.ok()) SLUICE_RETURN_IF_ERROR(CheckUnchanged(path));
    if (!more.ok()) return more.status();
    if (!*more) break;
    // A line belongs to the piece in which it starts, and may end in a later one.
    const uint64_t piece = (line.offset - begin) / piece_bytes;
    if (lines.size() <= piece) {
      // No line starts between this border and the line, nor at the borders that it spans.
      for (uint64_t p = lines.size(); p <= piece; ++p)
        RememberStart(*reader, begin + p * piece_bytes, line.offset);
      lines.resize(piece + 1);
    }
    if (!NoExample(*parser, &line)) ++lines[piece];
  }
  SLUICE_RETURN_IF_ERROR(CheckUnchanged(path));
  return lines;
}

absl::Status FileDataSource::ReadPiece(const std::string& path, uint64_t begin, uint64_t end,
                                       bool need_label, Batch* examples, BadLines* bad) const {
  const TextRange piece{begin, end};
  return ReadPieces(path, absl::MakeConstSpan(&piece, 1), need_label, examples, bad);
}

absl::Status FileDataSource::ReadPieces(const std::string& path, absl::Span<const TextRange> pieces,
                                        bool need_label, Batch* examples, BadLines* bad) const {
  const absl::Status read = ReadLines(path, pieces, need_label, examples, bad);
  // Report a change before errors of the text: a change while reading makes bad lines, or damaged
  // compressed text.
  SLUICE_RETURN_IF_ERROR(CheckUnchanged(path));
  return read;
}

absl::Status FileDataSource::ReadLines(const std::string& path, absl::Span<const TextRange> pieces,
                                       bool need_label, Batch* examples, BadLines* bad) const {
  if (pieces.empty()) return absl::OkStatus();
  SLUICE_ASSIGN_OR_RETURN(const FileParser file, ParserOf(path, need_label));
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<LineReader> reader,
                          ReaderAt(path, file, pieces.front().begin, pieces.front().end));
  if (files_ != nullptr)
    SLUICE_RETURN_IF_ERROR(files_->CheckUnchanged(path, reader->text().identity()));
  const std::unique_ptr<LineParser> parser = file.make();
  for (const TextRange& piece : pieces) {
    reader->ExpectEnd(piece.end);
    SLUICE_RETURN_IF_ERROR(
        SeekTo(std::max(piece.begin, file.examples_begin), file.examples_begin, reader.get()));
    SLUICE_RETURN_IF_ERROR(
        ReadLinesOf(piece, need_label, reader.get(), parser.get(), examples, bad));
  }
  // The next piece usually begins where this one ends. Compressed text could otherwise only be read
  // from the front.
  if (reader->text().compressed()) Keep(std::move(reader));
  return absl::OkStatus();
}

absl::Status FileDataSource::ReadLinesOf(const TextRange& piece, bool need_label,
                                         LineReader* reader, LineParser* parser, Batch* examples,
                                         BadLines* bad) const {
  LineReader::Line line;
  while (reader->next_offset() < piece.end) {
    SLUICE_ASSIGN_OR_RETURN(const bool more, reader->Next(&line));
    if (!more) return absl::OkStatus();
    if (NoExample(*parser, &line)) {
      if (examples->counts != nullptr && parser->RepeatsHeader(line.text()))
        examples->counts->CountRepeatedHeader();
      continue;
    }
    absl::Status bad_line;
    SLUICE_RETURN_IF_ERROR(AppendLine(parser, line, need_label, examples, &bad_line));
    if (bad_line.ok()) continue;
    if (bad->positions != nullptr) bad->positions->push_back(examples->n);
    // Finding the number of a line reads the file from the front, so only the lines that are shown
    // get one.
    const bool named = bad->Names(bad_line);
    bad->Add(named ? NameLine(*reader, line.offset) : "", bad_line);
  }
  RememberStart(*reader, piece.end, reader->next_offset());
  return absl::OkStatus();
}

// Lines are counted as they are read: standard input cannot be opened again to count them.
class FileDataSource::Stream : public ExampleStream {
 public:
  Stream(const FileDataSource* source, FileParser file, std::unique_ptr<LineReader> reader,
         std::string path, int id_column)
      : source_(*source),
        file_(std::move(file)),
        reader_(std::move(reader)),
        path_(std::move(path)),
        id_column_(id_column) {}

  absl::StatusOr<bool> Read(uint64_t bytes, Text* text) override {
    absl::StatusOr<bool> more = ReadLines(bytes, text);
    // Report a change before an error of the text, as ReadPiece does.
    if (!path_.empty()) SLUICE_RETURN_IF_ERROR(source_.CheckUnchanged(path_));
    return more;
  }
  std::unique_ptr<Parser> NewParser() const override;

 private:
  class StreamParser;

  absl::StatusOr<bool> ReadLines(uint64_t bytes, Text* text) {
    text->bytes.clear();
    text->lines.clear();
    const uint64_t begin = reader_->next_offset();
    LineReader::Line line;
    while (reader_->next_offset() - begin < bytes) {
      SLUICE_ASSIGN_OR_RETURN(const bool more, reader_->Next(&line));
      if (!more) break;
      RemoveByteOrderMark(&line);
      const size_t size = line.too_long ? 0 : line.size;
      text->lines.push_back(
          {text->bytes.size(), size, line.too_long, file_.header_lines + lines_ + 1});
      text->bytes.append(line.data, size);
      lines_ += line.line_ends;
    }
    if (!std::exchange(looked_for_label_, true)) LookForLabel(*text);
    return !text->lines.empty();
  }

  // The first lines of a file decide whether its lines have labels, by majority: a malformed line
  // must not decide for all others. Called before any line of the file is parsed.
  void LookForLabel(const Text& text) {
    if (!file_.vote) return;
    const std::unique_ptr<LineParser> parser = file_.make();
    int64_t votes = 0;
    for (const Text::Line& line : text.lines) {
      std::string copy = text.bytes.substr(line.begin, line.size);
      if (line.too_long || parser->Skips(copy)) continue;
      votes += file_.vote(&copy);
    }
    if (votes > 0) file_.make = file_.make_other;
    const size_t cells = file_.cells - (votes > 0 && file_.cells > 0 ? 1 : 0);
    reader_->ExpectCells(cells, cells);
  }

  const FileDataSource& source_;
  FileParser file_;  // constant after the first Read
  bool looked_for_label_ = false;
  const std::unique_ptr<LineReader> reader_;
  const std::string path_;  // "": standard input
  const int id_column_;     // of the parser's values; -1: none
  uint64_t lines_ = 0;      // of the file that are read
};

class FileDataSource::Stream::StreamParser : public ExampleStream::Parser {
 public:
  explicit StreamParser(const Stream* stream) : stream_(*stream), parser_(stream->file_.make()) {}

  absl::Status Parse(Text* text, Piece* piece, BadLines* bad) override {
    const FeatureSchema& schema = *stream_.source_.schema_;
    piece->examples.Reset(schema.numerics().size(), schema.slots().size());
    piece->bad_positions.clear();
    piece->ids.clear();
    for (const Text::Line& line : text->lines) {
      SLUICE_RETURN_IF_ERROR(Take({text->bytes.data() + line.begin, line.size, 0, line.too_long},
                                  line.number, piece, bad));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Take(const LineReader::Line& line, uint64_t number, Piece* piece, BadLines* bad) {
    if (!line.too_long && parser_->Skips(line.text())) return absl::OkStatus();
    absl::Status bad_line;
    bool parsed = false;
    SLUICE_RETURN_IF_ERROR(stream_.source_.AppendLine(parser_.get(), line, /*need_label=*/false,
                                                      &piece->examples, &bad_line, &parsed));
    if (stream_.id_column_ >= 0) {
      piece->ids.emplace_back(parsed ? parser_->values()[stream_.id_column_]
                                     : std::string_view(""));
    }
    if (bad_line.ok()) return absl::OkStatus();
    piece->bad_positions.push_back(piece->examples.n);
    bad->Add(absl::StrCat(stream_.reader_->text().path(), ":", number), bad_line);
    return absl::OkStatus();
  }

  const Stream& stream_;
  const std::unique_ptr<LineParser> parser_;
};

std::unique_ptr<ExampleStream::Parser> FileDataSource::Stream::NewParser() const {
  return std::make_unique<StreamParser>(this);
}

absl::StatusOr<std::unique_ptr<ExampleStream>> FileDataSource::OpenStream(
    const ExampleStream::Options& options) const {
  std::vector<std::string> columns = schema_->columns();
  int id_column = -1;
  if (!options.id_column.empty()) {
    // A feature's column can also be the id.
    const auto known = std::find(columns.begin(), columns.end(), options.id_column);
    id_column = static_cast<int>(known - columns.begin());
    if (known == columns.end()) columns.push_back(options.id_column);
  }
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<TextReader> text,
                          options.path.empty() ? TextReader::OpenStandardInput()
                                               : TextReader::Open(options.path, env_));
  if (files_ != nullptr && !options.path.empty())
    SLUICE_RETURN_IF_ERROR(files_->CheckUnchanged(options.path, text->identity()));
  auto reader = std::make_unique<LineReader>(std::move(text), delimited_.record_rule());
  SLUICE_ASSIGN_OR_RETURN(FileParser file, ParserOf(columns, /*need_label=*/false, reader.get()));
  // The first lines tell whether they lack the label.
  reader->ExpectCells(file.cells - (file.make_other && file.cells > 0 ? 1 : 0), file.cells);
  return std::unique_ptr<ExampleStream>(
      std::make_unique<Stream>(this, std::move(file), std::move(reader), options.path, id_column));
}

bool IsIndex(const std::string& name) {
  return !name.empty() &&
         std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

absl::Status CheckNoCsvOptions(const DataConfig& config) {
  for (const ConfigProblem& problem : FindCsvProblems(config))
    return absl::InvalidArgumentError(absl::StrCat(problem.path, " ", problem.text));
  return absl::OkStatus();
}

absl::Status CheckDelimitedColumns(const DataConfig& config, const FeatureSchema& schema) {
  const CsvFormat& csv = config.csv();
  // Exactly one of the two: with both, they could contradict each other.
  if (csv.header() == (csv.columns_size() > 0)) {
    return absl::InvalidArgumentError(
        csv.header()
            ? "data.csv has both header and columns; keep one of them"
            : "data.csv has neither header nor columns; set header: true or list the columns");
  }
  if (csv.header()) return absl::OkStatus();
  return BindColumns(schema.columns(), NamedColumns(config), true, "data.csv.columns").status();
}

absl::Status CheckLibsvmColumns(const FeatureSchema& schema) {
  for (size_t i = kWeightColumn; i < schema.columns().size(); ++i) {
    const std::string& name = schema.columns()[i];
    if ((i == kWeightColumn && name.empty()) || IsIndex(name)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("column ", QuotedCell(name),
                     " is not an index, and LIBSVM names its "
                     "columns by their index; set the feature's column, e.g. \"7\""));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status DataSource::CheckUnchanged(const std::string& path) const {
  return files_ == nullptr ? absl::OkStatus() : files_->CheckUnchanged(path);
}

absl::Status DataSource::CheckColumns(const std::string&, bool) const { return absl::OkStatus(); }

absl::StatusOr<DataSource::Beginning> DataSource::CheckBeginning(const std::string&, uint64_t,
                                                                 uint64_t,
                                                                 const LineProblem&) const {
  return absl::UnimplementedError("this data source cannot be checked");
}

absl::Status DataSource::ReadPieces(const std::string& path, absl::Span<const TextRange> pieces,
                                    bool need_label, Batch* examples, BadLines* bad) const {
  for (const TextRange& piece : pieces)
    SLUICE_RETURN_IF_ERROR(ReadPiece(path, piece.begin, piece.end, need_label, examples, bad));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ExampleStream>> DataSource::OpenStream(
    const ExampleStream::Options&) const {
  return absl::UnimplementedError("this data source cannot be read as a stream");
}

absl::StatusOr<std::unique_ptr<DataSource>> DataSource::Create(
    const DataConfig& config, std::shared_ptr<const FeatureSchema> schema, Env* env) {
  // Formats without quoted cells have a record on each line.
  Delimited delimited = Delimited::Criteo();
  switch (config.format()) {
    case DataConfig::CSV:
    case DataConfig::TSV: {
      SLUICE_ASSIGN_OR_RETURN(delimited, Delimited::FromConfig(config));
      SLUICE_RETURN_IF_ERROR(CheckDelimitedColumns(config, *schema));
      break;
    }
    case DataConfig::LIBSVM:
      SLUICE_RETURN_IF_ERROR(CheckNoCsvOptions(config));
      SLUICE_RETURN_IF_ERROR(CheckLibsvmColumns(*schema));
      break;
    case DataConfig::CRITEO_TSV:
      SLUICE_RETURN_IF_ERROR(CheckNoCsvOptions(config));
      SLUICE_RETURN_IF_ERROR(
          BindColumns(schema->columns(), NamedColumns(config), true, "format CRITEO_TSV").status());
      delimited = Delimited::Criteo();
      delimited.missing.assign(config.csv().missing().begin(), config.csv().missing().end());
      break;
    case DataConfig::MULTI_SLOT:
      SLUICE_RETURN_IF_ERROR(CheckNoCsvOptions(config));
      SLUICE_RETURN_IF_ERROR(
          BindColumns(schema->columns(), NamedColumns(config), true, "data.slots").status());
      break;
    default:
      return absl::InvalidArgumentError(
          "data.format is not set; use CSV, TSV, LIBSVM, CRITEO_TSV or MULTI_SLOT");
  }
  return std::unique_ptr<DataSource>(
      std::make_unique<FileDataSource>(config, std::move(schema), std::move(delimited), env));
}

}  // namespace sluice
