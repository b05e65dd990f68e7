// PARQUET: row groups of columns.
#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/arrow/parquet.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/config/csv_options.h"
#include "model/data/file_columns.h"
#include "model/data/format_reader.h"
#include "model/data/parquet_file.h"
#include "model/data/partition_folders.h"
#include "model/data/text_reader.h"

namespace sluice {
namespace {

// Decoded rows of all files that no thread reads, kept for later pieces.
constexpr uint64_t kKeptBytes = 256 << 20;
constexpr size_t kKeptFiles = 64;
constexpr size_t kRowsAtOnce = ColumnAppender::kUsualRows;

const char* NameOf(ArrowClass values) {
  switch (values) {
    case ArrowClass::kNumber:
      return "numbers";
    case ArrowClass::kText:
      return "text";
    case ArrowClass::kDate:
      return "dates";
    default:
      return "nothing";
  }
}

// The cells of n rows from `row` on, a number in the file. Errors name the file.
absl::StatusOr<absl::Span<const CellColumn>> CellsOfRows(const std::string& path,
                                                         const ParquetFile::Rows& rows,
                                                         uint64_t row, size_t n) {
  auto cells = rows.columns->Read(rows.batch.get(), static_cast<size_t>(row - rows.begin), n);
  if (cells.ok()) return cells;
  return absl::Status(cells.status().code(),
                      absl::StrCat("data file ", path, ": ", cells.status().message()));
}

// What a column is, apart from the width of its values: "lists of numbers (list<int64>)".
std::string KindOfColumn(const ArrowPath& column) {
  return absl::StrCat(column.list ? "lists of " : "", NameOf(column.values),
                      column.weighted ? " with weights" : "");
}

// A folder of tables that has files which are no longer part of it.
absl::Status CheckNoLake(const std::string& folder, Env* env) {
  const auto any = [&](const char* names) {
    const std::string marked = absl::StrReplaceAll(
        folder, {{"\\", "\\\\"}, {"*", "\\*"}, {"?", "\\?"}, {"[", "\\["}, {"]", "\\]"}});
    const auto found = env->Match(absl::StrCat(marked, names), 10'000);
    return found.ok() && !found->paths.empty();
  };
  const bool delta = any("/_delta_log/*.json");
  if (!delta && !any("/metadata/*.metadata.json")) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      folder, " is a table of ", delta ? "Delta Lake" : "Iceberg",
      ", which is not read: its files may have rows that were deleted since; write its rows to "
      "plain Parquet files first"));
}

class ParquetSource final : public DataSource {
 public:
  ParquetSource(const DataConfig& config, std::shared_ptr<const FeatureSchema> schema, Env* env)
      : DataSource(env), config_(config), schema_(std::move(schema)) {}

  absl::Status CheckColumns(const std::string& path, bool need_label) const override;
  absl::StatusOr<Beginning> CheckBeginning(const std::string& path, uint64_t bytes, uint64_t lines,
                                           const LineProblem& problem) const override;
  absl::StatusOr<uint64_t> TextBytes(const std::string& path) const override;
  absl::StatusOr<std::vector<RowGroup>> RowGroups(const std::string& path) const override;
  absl::StatusOr<std::vector<uint64_t>> CountLines(const std::string& path, uint64_t begin,
                                                   uint64_t end,
                                                   uint64_t piece_bytes) const override;
  absl::Status ReadPiece(const std::string& path, uint64_t begin, uint64_t end, bool need_label,
                         Batch* examples, BadLines* bad) const override {
    const TextRange piece{begin, end};
    return ReadPieces(path, absl::MakeConstSpan(&piece, 1), need_label, examples, bad);
  }
  absl::Status ReadPieces(const std::string& path, absl::Span<const TextRange> pieces,
                          bool need_label, Batch* examples, BadLines* bad) const override;
  absl::StatusOr<std::unique_ptr<ExampleStream>> OpenStream(
      const ExampleStream::Options& options) const override;

 private:
  class Stream;
  struct OpenFile {
    std::unique_ptr<ParquetFile> file;
    std::unique_ptr<ColumnAppender> appender;
    bool need_label = true;
  };

  absl::StatusOr<std::unique_ptr<ParquetFile>> Open(const std::string& path,
                                                    ParquetFile::Options options) const;
  // A file for the job's columns, kept or opened now, best one that is at `row`.
  absl::StatusOr<OpenFile> Take(const std::string& path, bool need_label, uint64_t row) const;
  void Keep(OpenFile file) const;
  // Refuses a file whose columns are not what they are in the first one.
  absl::Status CheckKinds(const ParquetFile& file) const;
  absl::Status CheckFolder(const std::string& path) const;
  absl::Status ReadRows(const TextRange& range, OpenFile* open, Batch* examples,
                        BadLines* bad) const;

  const DataConfig config_;
  const std::shared_ptr<const FeatureSchema> schema_;
  mutable Mutex mutex_;
  mutable std::vector<OpenFile> kept_ ABSL_GUARDED_BY(mutex_);  // least recently used first
  struct FirstColumn {
    std::string kind, path, type;
  };
  mutable std::map<std::string, FirstColumn> kinds_ ABSL_GUARDED_BY(mutex_);  // by column
  mutable std::string first_path_ ABSL_GUARDED_BY(mutex_);
  mutable std::set<std::string> checked_folders_ ABSL_GUARDED_BY(mutex_);
};

absl::Status ParquetSource::CheckKinds(const ParquetFile& file) const {
  MutexLock lock(&mutex_);
  if (first_path_.empty()) first_path_ = file.path();
  for (const ArrowPath& column : file.columns()) {
    if (column.values == ArrowClass::kNothing) continue;  // all values are missing
    const FirstColumn own{KindOfColumn(column), file.path(), column.type};
    const auto [first, added] = kinds_.emplace(column.name, own);
    if (added || first->second.kind == own.kind) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "data file ", file.path(), ": column \"", column.name, "\" has ", own.kind, " (", own.type,
        "), but ", first->second.kind, " (", first->second.type, ") in ", first->second.path,
        "; the files of a job need columns of one kind: convert one of them"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ParquetFile>> ParquetSource::Open(
    const std::string& path, ParquetFile::Options options) const {
  options.constants = PartitionColumns(config_, path);
  auto file = ParquetFile::Open(path, env_, std::move(options));
  if (!file.ok()) {
    MutexLock lock(&mutex_);
    if (first_path_.empty() || first_path_ == path || !absl::IsInvalidArgument(file.status()) ||
        !absl::StrContains(file.status().message(), " has no column "))
      return file.status();
    return absl::InvalidArgumentError(
        absl::StrCat(file.status().message(), " (", first_path_, " has it)"));
  }
  if (files_ != nullptr) SLUICE_RETURN_IF_ERROR(files_->CheckUnchanged(path, (*file)->identity()));
  SLUICE_RETURN_IF_ERROR(CheckKinds(**file));
  return file;
}

absl::StatusOr<ParquetSource::OpenFile> ParquetSource::Take(const std::string& path,
                                                            bool need_label, uint64_t row) const {
  SLUICE_ASSIGN_OR_RETURN(const FileIdentity identity, IdentifyFile(path, env_));
  {
    MutexLock lock(&mutex_);
    auto best = kept_.end();
    int distance = 3;
    for (auto it = kept_.begin(); it != kept_.end(); ++it) {
      if (it->file->path() != path || it->need_label != need_label ||
          !(it->file->identity() == identity) || it->file->DistanceTo(row) >= distance)
        continue;
      best = it;
      distance = it->file->DistanceTo(row);
    }
    if (best != kept_.end()) {
      OpenFile taken = std::move(*best);
      kept_.erase(best);
      return taken;
    }
  }
  OpenFile open;
  ParquetFile::Options options;
  options.columns = schema_->columns();
  options.need_label = open.need_label = need_label;
  SLUICE_ASSIGN_OR_RETURN(open.file, Open(path, std::move(options)));
  open.appender = schema_->NewColumnAppender();
  if (open.appender == nullptr)
    return absl::UnimplementedError("this schema does not read columns");
  return open;
}

void ParquetSource::Keep(OpenFile file) const {
  std::vector<OpenFile> dropped;  // destroyed outside of the lock
  MutexLock lock(&mutex_);
  kept_.push_back(std::move(file));
  const auto bytes = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    uint64_t sum = 0;
    for (const OpenFile& kept : kept_) sum += kept.file->kept_bytes();
    return sum;
  };
  while (kept_.size() > kKeptFiles || (kept_.size() > 1 && bytes() > kKeptBytes)) {
    dropped.push_back(std::move(kept_.front()));
    kept_.erase(kept_.begin());
  }
}

absl::Status ParquetSource::CheckFolder(const std::string& path) const {
  std::string folder = path;
  for (const auto* const patterns : {&config_.train_files(), &config_.eval_files()}) {
    for (const std::string& pattern : *patterns) {
      const std::string fixed = FixedFolders(pattern);
      if (!fixed.empty() && absl::StartsWith(path, fixed) && fixed.size() <= folder.size())
        folder = fixed;
    }
  }
  // The folder of the pattern, and those around it.
  for (int up = 0; up < 4; ++up) {
    const size_t slash = folder.rfind('/');
    if (slash == std::string::npos || slash == 0 || absl::EndsWith(folder, "://")) break;
    folder.resize(slash);
    if (absl::EndsWith(folder, ":/")) break;
    {
      MutexLock lock(&mutex_);
      if (!checked_folders_.insert(folder).second) continue;
    }
    const absl::Status status = CheckNoLake(folder, env_);
    if (status.ok()) continue;
    MutexLock lock(&mutex_);
    checked_folders_.erase(folder);
    return status;
  }
  return absl::OkStatus();
}

absl::Status ParquetSource::CheckColumns(const std::string& path, bool need_label) const {
  SLUICE_RETURN_IF_ERROR(OpenArrow());
  SLUICE_RETURN_IF_ERROR(CheckFolder(path));
  ParquetFile::Options options;
  options.columns = schema_->columns();
  options.need_label = need_label;
  return Open(path, std::move(options)).status();
}

absl::StatusOr<DataSource::Beginning> ParquetSource::CheckBeginning(
    const std::string& path, uint64_t, uint64_t lines, const LineProblem& problem) const {
  ParquetFile::Options options;
  options.columns = schema_->columns();
  options.most_batch_rows = std::max<uint64_t>(lines, 1);
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<ParquetFile> file, Open(path, std::move(options)));
  Beginning beginning;
  Batch examples;
  examples.Reset(schema_->numerics().size(), schema_->slots().size());
  const size_t columns = schema_->columns().size();
  std::vector<std::vector<Cell>> lists(columns);
  std::vector<Cell> cells(columns);
  const std::unique_ptr<bool[]> scratch(new bool[columns]);
  ExampleCells example;
  example.typed = cells.data();
  example.scratch = scratch.get();
  const uint64_t end = std::min(lines, file->rows());
  for (uint64_t row = 0; row < end;) {
    SLUICE_ASSIGN_OR_RETURN(const ParquetFile::Rows* const rows, file->RowsAt(row, end));
    const size_t n = static_cast<size_t>(std::min(rows->end, end) - row);
    SLUICE_ASSIGN_OR_RETURN(const absl::Span<const CellColumn> block,
                            CellsOfRows(path, *rows, row, n));
    // One by one, since all problems of a row are wanted.
    for (size_t r = 0; r < n; ++r, ++row) {
      for (size_t c = 0; c < columns; ++c) cells[c] = CellAt(block[c], r, &lists[c]);
      ++beginning.lines;
      const absl::Status status = schema_->AppendExample(example, /*need_label=*/true, &examples);
      if (status.ok()) continue;
      if (!absl::IsInvalidArgument(status)) return status;
      std::vector<absl::Status> problems = schema_->FindProblems(example);
      if (problems.empty()) problems.push_back(status);
      for (const absl::Status& why : problems) problem(row + 1, why);
    }
  }
  beginning.whole = end == file->rows();
  for (size_t i = 0; i < examples.n; ++i) {
    beginning.positive += examples.label[i] == 1;
    beginning.weighted += examples.weight[i] != 0;
  }
  return beginning;
}

absl::StatusOr<uint64_t> ParquetSource::TextBytes(const std::string& path) const {
  SLUICE_ASSIGN_OR_RETURN(OpenFile open, Take(path, /*need_label=*/true, 0));
  const uint64_t rows = open.file->rows();
  Keep(std::move(open));
  return rows;
}

absl::StatusOr<std::vector<RowGroup>> ParquetSource::RowGroups(const std::string& path) const {
  SLUICE_ASSIGN_OR_RETURN(OpenFile open, Take(path, /*need_label=*/true, 0));
  std::vector<RowGroup> groups = open.file->groups();
  Keep(std::move(open));
  return groups;
}

absl::StatusOr<std::vector<uint64_t>> ParquetSource::CountLines(const std::string& path,
                                                                uint64_t begin, uint64_t end,
                                                                uint64_t piece_bytes) const {
  SLUICE_ASSIGN_OR_RETURN(const uint64_t rows, TextBytes(path));
  std::vector<uint64_t> counts;
  for (end = std::min(end, rows); begin < end; begin += counts.back())
    counts.push_back(std::min(piece_bytes, end - begin));
  return counts;
}

absl::Status ParquetSource::ReadRows(const TextRange& range, OpenFile* open, Batch* examples,
                                     BadLines* bad) const {
  ParquetFile& file = *open->file;
  const uint64_t end = std::min(range.end, file.rows());
  for (uint64_t row = range.begin; row < end;) {
    SLUICE_ASSIGN_OR_RETURN(const ParquetFile::Rows* const rows, file.RowsAt(row, end));
    const uint64_t stop = std::min(rows->end, end);
    while (row < stop) {
      const size_t n = static_cast<size_t>(std::min<uint64_t>(stop - row, kRowsAtOnce));
      SLUICE_ASSIGN_OR_RETURN(const absl::Span<const CellColumn> cells,
                              CellsOfRows(file.path(), *rows, row, n));
      SLUICE_RETURN_IF_ERROR(open->appender->Append(
          cells.data(), n, open->need_label, examples, [&](size_t r, const absl::Status& why) {
            if (bad->positions != nullptr) bad->positions->push_back(examples->n);
            bad->Add(absl::StrCat(file.path(), ":", row + r + 1), why);
          }));
      row += n;
    }
  }
  return absl::OkStatus();
}

absl::Status ParquetSource::ReadPieces(const std::string& path, absl::Span<const TextRange> pieces,
                                       bool need_label, Batch* examples, BadLines* bad) const {
  if (pieces.empty()) return absl::OkStatus();
  SLUICE_ASSIGN_OR_RETURN(OpenFile open, Take(path, need_label, pieces.front().begin));
  absl::Status read;
  for (const TextRange& piece : pieces) {
    if (read.ok()) read = ReadRows(piece, &open, examples, bad);
  }
  // A change while reading explains damage.
  SLUICE_RETURN_IF_ERROR(CheckUnchanged(path));
  if (read.ok()) Keep(std::move(open));
  return read;
}

// The rows of a file in order, a batch at a time.
class ParquetSource::Stream final : public ExampleStream {
 public:
  Stream(const ParquetSource* source, std::unique_ptr<ParquetFile> file, int id_column)
      : source_(*source), file_(std::move(file)), id_column_(id_column) {}

  absl::StatusOr<bool> Read(uint64_t, Text* text) override {
    text->bytes.clear();
    text->lines.clear();
    text->rows = nullptr;
    if (next_row_ >= file_->rows()) return false;
    SLUICE_ASSIGN_OR_RETURN(const ParquetFile::Rows* const rows,
                            file_->RowsAt(next_row_, UINT64_MAX));
    text->rows = std::make_shared<ParquetFile::Rows>(*rows);
    next_row_ = rows->end;
    // No row is read twice.
    while (file_->DropOldest()) {
    }
    SLUICE_RETURN_IF_ERROR(source_.CheckUnchanged(file_->path()));
    return true;
  }
  std::unique_ptr<Parser> NewParser() const override;

 private:
  class RowParser;

  const ParquetSource& source_;
  const std::unique_ptr<ParquetFile> file_;
  const int id_column_;  // of the cells; -1: none
  uint64_t next_row_ = 0;
};

class ParquetSource::Stream::RowParser final : public ExampleStream::Parser {
 public:
  explicit RowParser(const Stream* stream)
      : stream_(*stream), appender_(stream->source_.schema_->NewColumnAppender()) {}

  absl::Status Parse(Text* text, Piece* piece, BadLines* bad) override {
    const FeatureSchema& schema = *stream_.source_.schema_;
    piece->examples.Reset(schema.numerics().size(), schema.slots().size());
    piece->bad_positions.clear();
    piece->ids.clear();
    if (text->rows == nullptr) return absl::OkStatus();
    const auto& rows = *static_cast<const ParquetFile::Rows*>(text->rows.get());
    for (uint64_t row = rows.begin; row < rows.end;) {
      const size_t n = static_cast<size_t>(std::min<uint64_t>(rows.end - row, kRowsAtOnce));
      SLUICE_ASSIGN_OR_RETURN(const absl::Span<const CellColumn> cells,
                              CellsOfRows(stream_.file_->path(), rows, row, n));
      if (stream_.id_column_ >= 0) AddIds(cells[static_cast<size_t>(stream_.id_column_)], n, piece);
      SLUICE_RETURN_IF_ERROR(
          appender_->Append(cells.data(), n, /*need_label=*/false, &piece->examples,
                            [&](size_t r, const absl::Status& why) {
                              piece->bad_positions.push_back(piece->examples.n);
                              bad->Add(absl::StrCat(stream_.file_->path(), ":", row + r + 1), why);
                            }));
      row += n;
    }
    return absl::OkStatus();
  }

 private:
  static void AddIds(const CellColumn& column, size_t rows, Piece* piece) {
    std::vector<Cell> values;
    NumberText memory;
    for (size_t r = 0; r < rows; ++r)
      piece->ids.emplace_back(TextOf(CellAt(column, r, &values), &memory));
  }

  const Stream& stream_;
  const std::unique_ptr<ColumnAppender> appender_;
};

std::unique_ptr<ExampleStream::Parser> ParquetSource::Stream::NewParser() const {
  return std::make_unique<RowParser>(this);
}

absl::StatusOr<std::unique_ptr<ExampleStream>> ParquetSource::OpenStream(
    const ExampleStream::Options& options) const {
  if (options.path.empty()) {
    return absl::InvalidArgumentError(
        "Parquet is not read from standard input, since its index stands at its end; name the "
        "file");
  }
  ParquetFile::Options of_file;
  of_file.columns = schema_->columns();
  of_file.features_end = of_file.columns.size();
  of_file.need_label = false;
  int id_column = -1;
  if (!options.id_column.empty()) {
    // A feature's column can also be the id.
    const auto known = std::find(of_file.columns.begin(), of_file.columns.end(), options.id_column);
    id_column = static_cast<int>(known - of_file.columns.begin());
    if (known == of_file.columns.end()) of_file.columns.push_back(options.id_column);
  }
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<ParquetFile> file,
                          Open(options.path, std::move(of_file)));
  return std::unique_ptr<ExampleStream>(std::make_unique<Stream>(this, std::move(file), id_column));
}

absl::StatusOr<std::unique_ptr<DataSource>> MakeParquetSource(
    const DataConfig& config, std::shared_ptr<const FeatureSchema> schema, Env* env) {
  SLUICE_RETURN_IF_ERROR(CheckNoCsvOptions(config));
  SLUICE_RETURN_IF_ERROR(OpenArrow());
  return std::unique_ptr<DataSource>(
      std::make_unique<ParquetSource>(config, std::move(schema), env));
}

absl::StatusOr<std::vector<std::string>> ColumnsOfParquet(const DataConfig& config,
                                                          const std::string& path, Env* env) {
  return ParquetFile::ColumnsOf(path, env, PartitionColumns(config, path));
}

}  // namespace

FormatReader ReadParquet() { return {&MakeParquetSource, &ColumnsOfParquet}; }

}  // namespace sluice
