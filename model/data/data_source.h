// Reads training and evaluation data: files, pieces of files, and their examples.
//
// Text is plain, gzip or zstd (recognized by magic bytes). Positions in a file are offsets in the
// decompressed text. A piece holds the lines that start in [begin, end). A line of delimited text
// goes on after a line end inside of a quoted cell (RecordRule).
//
// In formats of rows (DataFormat::rows) a position is the number of a row, from 0, and what is said
// of lines holds for rows.
//
// Thread safety: a DataSource is safe from any thread, except Expect, which must not run
// concurrently with other calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/data/bad_lines.h"
#include "model/data/data_files.h"
#include "model/features/batch.h"
#include "model/features/feature_schema.h"
#include "proto/config.pb.h"
#include "proto/scheduler.pb.h"

namespace sluice {

// The lines of a file, or of standard input, as examples: read in order, piece by piece. One thread
// reads at a time, and any number of threads parse what was read.
//
// Memory: one line buffer, and the texts and pieces of the callers.
//
// Thread safety: Read by one thread at a time; NewParser from any thread, each parser for one
// thread at a time.
class ExampleStream {
 public:
  struct Options {
    std::string path;       // "" is standard input
    std::string id_column;  // "" for none
  };
  // Lines that are not parsed yet. Formats of rows have `rows` instead.
  struct Text {
    struct Line {
      size_t begin = 0, size = 0;  // in `bytes`; empty when too_long
      bool too_long = false;       // more than LineReader::kMaxLineBytes
      uint64_t number = 0;         // in the file, from 1
    };
    std::string bytes;
    std::vector<Line> lines;
    std::shared_ptr<void> rows;
  };
  struct Piece {
    Batch examples;
    // For each bad line, the number of examples of the piece before it.
    std::vector<uint64_t> bad_positions;
    // With an id_column: the ids of all lines, bad ones too, in order; "" for a line that could not
    // be split into cells.
    std::vector<std::string> ids;
  };
  class Parser {
   public:
    virtual ~Parser() = default;
    // Fills *piece with the lines of `text`, and changes the text. A label may be missing. Adds bad
    // lines to *bad.
    virtual absl::Status Parse(Text* text, Piece* piece, BadLines* bad) = 0;
  };
  virtual ~ExampleStream() = default;

  // Fills *text with the next lines, about `bytes` of them. False at the end, with an empty text.
  virtual absl::StatusOr<bool> Read(uint64_t bytes, Text* text) = 0;
  // The stream must outlive its parsers.
  virtual std::unique_ptr<Parser> NewParser() const = 0;
};

// The lines that start in [begin, end) of a text, or these rows.
struct TextRange {
  uint64_t begin = 0, end = UINT64_MAX;
};

// Pieces of one file, which ascend and do not overlap.
struct FilePieces {
  std::string path;
  std::vector<TextRange> pieces;
};

// Rows that are stored together.
struct RowGroup {
  uint64_t rows = 0;
  uint64_t bytes = 0;  // of the columns that the job uses, uncompressed
};

class DataSource {
 public:
  // INVALID_ARGUMENT when the features do not fit the format, such as for an undeclared column.
  // `env` opens the files and outlives the source.
  static absl::StatusOr<std::unique_ptr<DataSource>> Create(
      const DataConfig& config, std::shared_ptr<const FeatureSchema> schema, Env* env);
  virtual ~DataSource() = default;

  // From now on every file of the job must be as `files` has seen it. Reading a file that has
  // changed, or changes meanwhile, fails as DataFiles::CheckUnchanged says. Must not run at the
  // same time as other calls.
  void Expect(std::shared_ptr<const DataFiles> files) { files_ = std::move(files); }
  // FAILED_PRECONDITION when the file is no longer as expected.
  absl::Status CheckUnchanged(const std::string& path) const;

  // Opens the file. INVALID_ARGUMENT when it is not of the format, or its header lacks a needed
  // column; other errors when the file cannot be read. Formats of rows also refuse a column whose
  // values are of another kind than in the files before, such as text instead of numbers.
  virtual absl::Status CheckColumns(const std::string& path, bool need_label) const;

  // What CheckBeginning has looked at.
  struct Beginning {
    uint64_t lines = 0;     // examples and malformed lines
    bool whole = false;     // the file ends there
    uint64_t positive = 0;  // examples with label 1
    uint64_t weighted = 0;  // examples whose weight is not 0
    // Where each line names its columns: of each of the schema's columns, the lines that name it,
    // and those that have a value of it, which may be null. Otherwise empty.
    std::vector<uint64_t> named, with_value;
  };
  // Tells `line`, its number from 1, and what is wrong with it.
  using LineProblem = std::function<void(uint64_t line, const absl::Status& why)>;
  // Parses the beginning of the file, up to `bytes` of its text or `lines` lines (or rows alone),
  // as ReadPiece would with need_label, and tells of every problem of every line; a line may have
  // several. A first line that looks like a header, in a file that has none, is one problem. LIBSVM
  // labels 0 and -1 in one file are a problem here, though ReadPiece takes both. Statuses as
  // ReadPiece.
  virtual absl::StatusOr<Beginning> CheckBeginning(const std::string& path, uint64_t bytes,
                                                   uint64_t lines,
                                                   const LineProblem& problem) const;

  // The end of the file's positions: bytes of the decompressed text, or rows. Reads the whole file
  // when it is compressed text.
  virtual absl::StatusOr<uint64_t> TextBytes(const std::string& path) const = 0;
  // Formats of rows: the row groups of the file, which its footer tells.
  virtual absl::StatusOr<std::vector<RowGroup>> RowGroups(const std::string& path) const;

  // Counts, without parsing, the lines that ReadPiece turns into examples or bad lines. Element i
  // counts those that start in [begin + i * piece_bytes, begin + (i + 1) * piece_bytes) and before
  // `end`. The last element counts the last line that starts before `end`.
  virtual absl::StatusOr<std::vector<uint64_t>> CountLines(const std::string& path, uint64_t begin,
                                                           uint64_t end,
                                                           uint64_t piece_bytes) const = 0;

  // Parses one piece; `end` may be UINT64_MAX. Header lines and comments are not examples. Bad
  // lines are counted and skipped; a missing column is an error of the file, not of a line. Appends
  // to *examples (already Reset) without example ids.
  virtual absl::Status ReadPiece(const std::string& path, uint64_t begin, uint64_t end,
                                 bool need_label, Batch* examples, BadLines* bad) const = 0;

  // Parses several pieces of a file as ReadPiece does each of them, in one pass over the file.
  // REQUIRES: the pieces ascend and do not overlap.
  virtual absl::Status ReadPieces(const std::string& path, absl::Span<const TextRange> pieces,
                                  bool need_label, Batch* examples, BadLines* bad) const;

  // Begins to fetch what ReadPieces will read of files that are far away, and returns before it is
  // here. Errors are left to ReadPieces.
  virtual void FetchAhead(absl::Span<const FilePieces>) const {}

  // Reads the same lines in order, for prediction. The source must outlive the stream. Opening a
  // file that is not as expected fails, and so does reading a piece of it. INVALID_ARGUMENT when
  // the data has no column id_column.
  virtual absl::StatusOr<std::unique_ptr<ExampleStream>> OpenStream(
      const ExampleStream::Options& options) const;

  Env* env() const { return env_; }

 protected:
  explicit DataSource(Env* env) : env_(env) {}
  Env* const env_;
  std::shared_ptr<const DataFiles> files_;  // null: any files
};

}  // namespace sluice
