#include "model/data/data_source.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/mutex.h"
#include "common/base/ranges_reader.h"
#include "common/base/status_macros.h"
#include "common/config/data_format.h"
#include "model/data/file_columns.h"
#include "model/data/format_reader.h"
#include "model/data/line_format.h"
#include "model/data/line_parser.h"
#include "model/data/line_reader.h"
#include "model/features/cell.h"
#include "model/features/data_summary.h"

namespace sluice {
namespace {

constexpr size_t kCountBytes = 256 << 10;  // read at once to count lines

// Dealt data has many short pieces. Far away, each would wait for requests of its own.
void ExpectPieces(absl::Span<const TextRange> pieces, LineReader* reader) {
  if (pieces.size() < 2) return;
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  for (const TextRange& piece : pieces) ranges.emplace_back(piece.begin, piece.end);
  reader->ExpectPieces(ranges);
}

// Whether the line is blank or a comment. Removes a byte order mark from the line.
bool NoExample(const LineParser& parser, LineReader::Line* line) {
  RemoveByteOrderMark(line);
  return !line->too_long && parser.Skips(line->text());
}

// Features that are numbers or vectors of them.
size_t NumericFeatures(const FeatureSchema& schema) {
  const auto& numbers = schema.numerics();
  size_t features = 0;
  for (size_t i = 0; i < numbers.size(); i += std::max<size_t>(numbers[i].dim, 1)) ++features;
  return features;
}

// Problems of the lines of a beginning, on their way to `problem`. Those of the first line wait for
// the second: where only the first is wrong, and names stand in it for numbers, it is a header.
class BeginningProblems {
 public:
  BeginningProblems(const DataConfig& data, size_t numerics, const DataSource::LineProblem& problem)
      : data_(data), format_(FormatOf(data)), numerics_(numerics), problem_(problem) {}

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
      held_ = {absl::InvalidArgumentError(absl::StrCat(
          "the line looks like a header: remove it, or set data.", format_.remedy_of_header))};
    }
    Release();
    if (format_.signed_labels) CheckSign(number, parser);
  }
  // Passes on what waits.
  void Release() {
    for (const absl::Status& why : std::exchange(held_, {})) problem_(held_number_, why);
  }

 private:
  bool MayBeHeader(size_t problems, const LineParser& parser) const {
    if (*format_.remedy_of_header == '\0' || data_.csv().header()) return false;
    const std::string label = parser.TextAt(kLabelColumn);
    double number;
    if (label.empty() || ParseNumber(label, &number)) return false;
    return 2 * problems > numerics_ + 1;
  }

  // Where -1 means label 0, a label 0 may mean that the label is not known.
  void CheckSign(uint64_t number, const LineParser& parser) {
    if (data_.label().positive_size() > 0 || data_.label().has_positive_at_least()) return;
    double label;
    if (!ParseNumber(parser.TextAt(kLabelColumn), &label) || label > 0) return;
    uint64_t* const own = label < 0 ? &minus_ : &zero_;
    const uint64_t other = label < 0 ? zero_ : minus_;
    if (*own == 0) *own = number;
    if (other == 0) return;
    problem_(number, absl::InvalidArgumentError(
                         absl::StrCat("label ", label < 0 ? "-1" : "0", ", but line ", other,
                                      " has label ", label < 0 ? "0" : "-1", "; the labels of ",
                                      DataConfig::Format_Name(data_.format()),
                                      " are 0 and 1, or -1 and 1: correct them, or set "
                                      "data.label.positive: \"1\" if both mean 0")));
  }

  const DataConfig& data_;
  const DataFormat& format_;
  const size_t numerics_;
  const DataSource::LineProblem& problem_;
  uint64_t lines_ = 0;
  uint64_t held_number_ = 0;
  std::vector<absl::Status> held_;
  uint64_t zero_ = 0, minus_ = 0;  // the first lines with labels 0 and -1
};

class LineSource : public DataSource {
 public:
  explicit LineSource(std::unique_ptr<LineFormat> format)
      : DataSource(format->env()), format_(std::move(format)) {}

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
  void FetchAhead(absl::Span<const FilePieces> files) const override;
  absl::StatusOr<std::unique_ptr<ExampleStream>> OpenStream(
      const ExampleStream::Options& options) const override;

 private:
  class Stream;
  static constexpr size_t kKeptReaders = 8;
  static constexpr size_t kKeptStarts = 1 << 16;

  absl::Status ReadLines(const std::string& path, absl::Span<const TextRange> pieces,
                         bool need_label, Batch* examples, BadLines* bad) const;
  // Reads up to the end of `piece`. `reader` is at its beginning.
  absl::Status ReadLinesOf(const TextRange& piece, bool need_label, LineReader* reader,
                           LineParser* parser, Batch* examples, BadLines* bad) const;
  absl::StatusOr<std::unique_ptr<TextReader>> OpenText(const std::string& path) const {
    return sluice::OpenText(format_->config(), path, env_);
  }
  // A reader at the first example of `file`, which is at `path`, that starts at or after the begin
  // of the first piece, for those that start in the pieces.
  absl::StatusOr<std::unique_ptr<LineReader>> ReaderAt(const std::string& path,
                                                       const FileParser& file,
                                                       absl::Span<const TextRange> pieces) const;
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

  const FeatureSchema& schema() const { return *format_->schema(); }

  const std::unique_ptr<LineFormat> format_;
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
};

absl::StatusOr<uint64_t> LineSource::TextBytes(const std::string& path) const {
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<TextReader> text, OpenText(path));
  const absl::Status skipped = text->SkipTo(UINT64_MAX);
  // Report a change before an error of the text: a file that is being written often looks damaged.
  SLUICE_RETURN_IF_ERROR(CheckUnchanged(path));
  SLUICE_RETURN_IF_ERROR(skipped);
  return text->offset();
}

absl::Status LineSource::CheckColumns(const std::string& path, bool need_label) const {
  if (format_->reads_first_lines()) return format_->ParserOf(path, need_label).status();
  // The first bytes still tell a file that is no text.
  return OpenText(path).status();
}

absl::StatusOr<DataSource::Beginning> LineSource::CheckBeginning(const std::string& path,
                                                                 uint64_t bytes, uint64_t lines,
                                                                 const LineProblem& problem) const {
  SLUICE_ASSIGN_OR_RETURN(const FileParser file, format_->ParserOf(path, /*need_label=*/true));
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<LineReader> at_start,
                          ReaderAt(path, file, {{0, bytes}}));
  LineReader& reader = *at_start;
  const std::unique_ptr<LineParser> parser = file.Make();
  Beginning beginning;
  Batch examples;
  examples.Reset(schema().numerics().size(), schema().slots().size());
  LineReader::Line line;
  BeginningProblems problems(format_->config(), NumericFeatures(schema()), problem);
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
    if (parsed && FormatOf(format_->config()).names_in_lines) {
      parser->CountNames(&beginning.named);
      parser->CountValues(&beginning.with_value);
    }
    if (bad_line.ok()) {
      problems.AddExample(number, *parser);
      continue;
    }
    std::vector<absl::Status> of_line;
    if (parsed) of_line = schema().FindProblems(parser->cells());
    if (of_line.empty()) of_line.push_back(bad_line);
    problems.Add(number, std::move(of_line), parsed, *parser);
  }
  problems.Release();
  // Lines do not name them.
  for (const LineParser::Constant& constant : file.constants) {
    if (!beginning.named.empty()) beginning.named[constant.column] = beginning.lines;
  }
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

std::unique_ptr<LineReader> LineSource::TakeKept(const FileIdentity& identity,
                                                 const std::string& path, uint64_t begin) const {
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

void LineSource::Keep(std::unique_ptr<LineReader> reader) const {
  std::unique_ptr<LineReader> dropped;  // destroyed outside of the lock
  MutexLock lock(&mutex_);
  if (kept_.size() == kKeptReaders) {
    dropped = std::move(kept_.front());
    kept_.erase(kept_.begin());
  }
  kept_.push_back(std::move(reader));
}

absl::StatusOr<std::unique_ptr<LineReader>> LineSource::ReaderAt(
    const std::string& path, const FileParser& file, absl::Span<const TextRange> pieces) const {
  const uint64_t begin = std::max(pieces.front().begin, file.examples_begin);
  SLUICE_ASSIGN_OR_RETURN(const FileIdentity identity, IdentifyFile(path, env_));
  std::unique_ptr<LineReader> reader = TakeKept(identity, path, begin);
  if (reader == nullptr) {
    SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<TextReader> text, OpenText(path));
    reader = std::make_unique<LineReader>(std::move(text), format_->record_rule());
    reader->ExpectCells(file.cells, file.cells);
  }
  ExpectPieces(pieces, reader.get());
  // So the reader takes little more of the file than the piece.
  reader->ExpectEnd(pieces.front().end);
  SLUICE_RETURN_IF_ERROR(SeekTo(begin, file.examples_begin, reader.get()));
  return reader;
}

absl::Status LineSource::SeekTo(uint64_t begin, uint64_t start, LineReader* reader) const {
  if (begin > reader->next_offset() && reader->joins_lines() && !reader->text().compressed()) {
    const std::optional<uint64_t> known =
        begin <= start ? start
                       : KnownStart(reader->text().path(), reader->text().identity(), begin);
    if (known) return reader->MoveTo(*known, begin);
  }
  return reader->Seek(begin);
}

void LineSource::RememberStart(const LineReader& reader, uint64_t border, uint64_t start) const {
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

std::optional<uint64_t> LineSource::KnownStart(const std::string& path,
                                               const FileIdentity& identity,
                                               uint64_t border) const {
  MutexLock lock(&mutex_);
  const auto starts = starts_.find(path);
  if (starts == starts_.end() || !(starts->second.identity == identity)) return std::nullopt;
  const auto start = starts->second.by_border.find(border);
  if (start == starts->second.by_border.end()) return std::nullopt;
  return start->second;
}

absl::StatusOr<uint64_t> LineSource::LineNumberAt(const FileIdentity& identity,
                                                  const std::string& path, uint64_t offset) const {
  CountedLines counted{path, identity};
  {
    MutexLock lock(&mutex_);
    if (counted_.path == path && counted_.identity == identity && counted_.offset <= offset)
      counted = counted_;
  }
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<TextReader> text, OpenText(path));
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

std::string LineSource::NameLine(const LineReader& reader, uint64_t offset) const {
  const std::string& path = reader.text().path();
  const auto number = LineNumberAt(reader.text().identity(), path, offset);
  return number.ok() ? absl::StrCat(path, ":", *number) : absl::StrCat(path, "@", offset);
}

absl::Status LineSource::AppendLine(LineParser* parser, const LineReader::Line& line,
                                    bool need_label, Batch* examples, absl::Status* bad_line,
                                    bool* parsed) const {
  if (line.too_long) {
    *bad_line = absl::InvalidArgumentError(
        absl::StrCat("the line is longer than ", LineReader::kMaxLineBytes, " bytes"));
    return absl::OkStatus();
  }
  *bad_line = parser->Parse(line.data, line.size);
  if (!bad_line->ok()) return absl::OkStatus();
  parser->FillConstants();
  if (parsed != nullptr) *parsed = true;
  absl::Status status = schema().AppendExample(parser->cells(), need_label, examples);
  // Other errors are not the line's, such as a batch that is full.
  if (!absl::IsInvalidArgument(status)) return status;
  *bad_line = std::move(status);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<uint64_t>> LineSource::CountLines(const std::string& path,
                                                             uint64_t begin, uint64_t end,
                                                             uint64_t piece_bytes) const {
  SLUICE_ASSIGN_OR_RETURN(const FileParser file, format_->ParserOf(path, /*need_label=*/true));
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<LineReader> reader, ReaderAt(path, file, {{begin, end}}));
  const std::unique_ptr<LineParser> parser = file.Make();
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

absl::Status LineSource::ReadPiece(const std::string& path, uint64_t begin, uint64_t end,
                                   bool need_label, Batch* examples, BadLines* bad) const {
  const TextRange piece{begin, end};
  return ReadPieces(path, absl::MakeConstSpan(&piece, 1), need_label, examples, bad);
}

absl::Status LineSource::ReadPieces(const std::string& path, absl::Span<const TextRange> pieces,
                                    bool need_label, Batch* examples, BadLines* bad) const {
  const absl::Status read = ReadLines(path, pieces, need_label, examples, bad);
  // Report a change before errors of the text: a change while reading makes bad lines, or damaged
  // compressed text.
  SLUICE_RETURN_IF_ERROR(CheckUnchanged(path));
  return read;
}

absl::Status LineSource::ReadLines(const std::string& path, absl::Span<const TextRange> pieces,
                                   bool need_label, Batch* examples, BadLines* bad) const {
  if (pieces.empty()) return absl::OkStatus();
  SLUICE_ASSIGN_OR_RETURN(const FileParser file, format_->ParserOf(path, need_label));
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<LineReader> reader, ReaderAt(path, file, pieces));
  if (files_ != nullptr)
    SLUICE_RETURN_IF_ERROR(files_->CheckUnchanged(path, reader->text().identity()));
  const std::unique_ptr<LineParser> parser = file.Make();
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

void LineSource::FetchAhead(absl::Span<const FilePieces> files) const {
  // The heads of all files come together. Until its head is here, nobody knows whether a file is
  // compressed, and can only be read from the front.
  std::vector<const FilePieces*> far;
  for (const FilePieces& file : files) {
    if (env_->PlaceOf(file.path).map) continue;  // near
    const auto reader = env_->NewReader(file.path);
    auto* const ranges = reader.ok() ? dynamic_cast<RangesReader*>(reader->get()) : nullptr;
    if (ranges == nullptr) continue;
    ranges->ExpectHead();
    far.push_back(&file);
  }
  for (const FilePieces* file : far) {
    absl::StatusOr<std::unique_ptr<TextReader>> text = OpenText(file->path);
    if (!text.ok()) continue;
    LineReader reader(*std::move(text), format_->record_rule());
    ExpectPieces(file->pieces, &reader);
  }
}

absl::Status LineSource::ReadLinesOf(const TextRange& piece, bool need_label, LineReader* reader,
                                     LineParser* parser, Batch* examples, BadLines* bad) const {
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
class LineSource::Stream : public ExampleStream {
 public:
  Stream(const LineSource* source, FileParser file, std::unique_ptr<LineReader> reader,
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

  const LineSource& source_;
  FileParser file_;  // constant after the first Read
  bool looked_for_label_ = false;
  const std::unique_ptr<LineReader> reader_;
  const std::string path_;  // "": standard input
  const int id_column_;     // of the parser's values; -1: none
  uint64_t lines_ = 0;      // of the file that are read
};

class LineSource::Stream::StreamParser : public ExampleStream::Parser {
 public:
  explicit StreamParser(const Stream* stream) : stream_(*stream), parser_(stream->file_.Make()) {}

  absl::Status Parse(Text* text, Piece* piece, BadLines* bad) override {
    const FeatureSchema& schema = stream_.source_.schema();
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
      piece->ids.push_back(parsed ? parser_->TextAt(static_cast<size_t>(stream_.id_column_))
                                  : std::string());
    }
    if (bad_line.ok()) return absl::OkStatus();
    piece->bad_positions.push_back(piece->examples.n);
    bad->Add(absl::StrCat(stream_.reader_->text().path(), ":", number), bad_line);
    return absl::OkStatus();
  }

  const Stream& stream_;
  const std::unique_ptr<LineParser> parser_;
};

std::unique_ptr<ExampleStream::Parser> LineSource::Stream::NewParser() const {
  return std::make_unique<StreamParser>(this);
}

absl::StatusOr<std::unique_ptr<ExampleStream>> LineSource::OpenStream(
    const ExampleStream::Options& options) const {
  std::vector<std::string> columns = schema().columns();
  int id_column = -1;
  if (!options.id_column.empty()) {
    // A feature's column can also be the id.
    const auto known = std::find(columns.begin(), columns.end(), options.id_column);
    id_column = static_cast<int>(known - columns.begin());
    if (known == columns.end()) columns.push_back(options.id_column);
  }
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<TextReader> text,
                          options.path.empty()
                              ? TextReader::OpenStandardInput(FormatOf(format_->config()).json)
                              : OpenText(options.path));
  if (files_ != nullptr && !options.path.empty())
    SLUICE_RETURN_IF_ERROR(files_->CheckUnchanged(options.path, text->identity()));
  auto reader = std::make_unique<LineReader>(std::move(text), format_->record_rule());
  SLUICE_ASSIGN_OR_RETURN(FileParser file, format_->ParserOfStream(columns, reader.get()));
  // The first lines tell whether they lack the label.
  reader->ExpectCells(file.cells - (file.make_other && file.cells > 0 ? 1 : 0), file.cells);
  return std::unique_ptr<ExampleStream>(
      std::make_unique<Stream>(this, std::move(file), std::move(reader), options.path, id_column));
}

}  // namespace

absl::Status DataSource::CheckUnchanged(const std::string& path) const {
  return files_ == nullptr ? absl::OkStatus() : files_->CheckUnchanged(path);
}

absl::StatusOr<std::vector<RowGroup>> DataSource::RowGroups(const std::string&) const {
  return absl::UnimplementedError("this data source has no row groups");
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
  const FormatReader* const reader = ReaderOf(config);
  if (reader == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("data.format is not set; use ", FormatNames()));
  }
  return reader->make_source(config, std::move(schema), env);
}

std::unique_ptr<DataSource> MakeLineSource(std::unique_ptr<LineFormat> format) {
  return std::make_unique<LineSource>(std::move(format));
}

}  // namespace sluice
