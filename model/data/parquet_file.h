// A Parquet file that is open for some of its columns, and the rows that are decoded of it.
//
// A row can only be found by decoding those before it in its row group. So batches of decoded rows
// are kept, the last used ones, and a row group is decoded on from where the last call left it.
//
// Memory: the kept batches, at most Options.most_kept_bytes, or one batch that is larger.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/arrow/parquet.h"
#include "common/base/env.h"
#include "model/data/arrow_columns.h"
#include "model/data/data_source.h"

namespace sluice {

class ParquetFile {
 public:
  struct Options {
    std::vector<std::string> columns;  // of the job, label and weight first; then an id
    size_t features_end = SIZE_MAX;    // columns from here on are no features
    bool need_label = true;
    // Columns that the file has unless it has them itself: names and values.
    std::vector<std::pair<std::string, std::string>> constants;
    uint64_t most_batch_rows = UINT64_MAX;
    uint64_t most_kept_bytes = 256 << 20;
  };
  // Rows that were decoded together.
  struct Rows {
    uint64_t begin = 0, end = 0;  // in the file
    std::shared_ptr<ArrowBatch> batch;
    std::shared_ptr<ArrowColumns> columns;  // its cells, in the order of Options.columns
  };

  // INVALID_ARGUMENT when it is no Parquet file, or lacks a column or has it twice; UNIMPLEMENTED
  // for a column whose type is not read; FAILED_PRECONDITION without the Arrow library. All errors
  // of this class name the file.
  static absl::StatusOr<std::unique_ptr<ParquetFile>> Open(const std::string& path, Env* env,
                                                           Options options);
  // The file itself, for code that reads whole columns. Errors as Open's; the caller names the file
  // in those of the reader.
  static absl::StatusOr<std::unique_ptr<ParquetReader>> OpenReader(const std::string& path,
                                                                   Env* env);
  // All columns that a file has, with the constants.
  static absl::StatusOr<std::vector<std::string>> ColumnsOf(
      const std::string& path, Env* env,
      const std::vector<std::pair<std::string, std::string>>& constants);

  const std::string& path() const { return path_; }
  const FileIdentity& identity() const { return reader_->info().identity; }
  const std::vector<RowGroup>& groups() const { return groups_; }
  uint64_t rows() const { return rows_; }
  // By Options.columns: what the column is in this file; nothing if it is not there.
  const std::vector<ArrowPath>& columns() const { return columns_; }

  // The decoded rows that `row` is among. Rows before `end` are likely to be asked for next. They
  // are valid until the next call, and the batch as long as it is held.
  // REQUIRES: row < rows().
  absl::StatusOr<const Rows*> RowsAt(uint64_t row, uint64_t end);
  // How little must be decoded to reach the row: 0 nothing, 1 from the rows before it, 2 more.
  int DistanceTo(uint64_t row) const;

  // Of the kept batches.
  uint64_t kept_bytes() const { return kept_bytes_; }
  // Frees the kept batch that was used least recently, but not the one used last. False: there is
  // none.
  bool DropOldest();

 private:
  struct Kept {
    Rows rows;
    uint64_t bytes = 0, used = 0;
  };

  ParquetFile(std::string path, Options options) : path_(std::move(path)), options_(options) {}
  absl::Status Bind();
  absl::Status Named(const absl::Status& status) const;
  size_t GroupOf(uint64_t row) const;
  absl::Status StartAt(size_t group, uint64_t end);
  absl::Status DecodeNext();

  const std::string path_;
  const Options options_;
  std::unique_ptr<ParquetReader> reader_;
  std::vector<ArrowPath> columns_;
  std::vector<ArrowColumns::Source> sources_;
  std::vector<int32_t> projection_;  // top-level columns
  std::vector<RowGroup> groups_;
  std::vector<uint64_t> begins_;  // first rows of the groups
  uint64_t rows_ = 0;

  std::unique_ptr<ParquetRows> decoding_;     // null: nothing is decoded on
  uint64_t next_row_ = 0, decoding_end_ = 0;  // of decoding_
  std::vector<Kept> kept_;
  uint64_t kept_bytes_ = 0, uses_ = 0;
};

}  // namespace sluice
