// The rows of some row groups of a Parquet file, a batch at a time, with the chosen columns alone.
//
// Memory: the chosen columns of a row group are fetched whole up to kMostWholeBytes, so that their
// reads are few; a larger group is read through a buffer a column. Decoded are the rows of a batch.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "arrow/record_batch.h"
#include "arrow/result.h"
#include "arrow/status.h"
#include "arrow/type.h"
#include "common/arrow/plugin/ranged_file.h"
#include "parquet/arrow/reader.h"
#include "parquet/metadata.h"

namespace sluice_arrow {

// Bytes as stored, of the chosen columns of one row group.
inline constexpr int64_t kMostWholeBytes = 64 << 20;
// Bytes between two columns that are fetched rather than asked for by two requests, and the most
// that one request fetches of several columns.
inline constexpr int64_t kMostHoleBytes = 8 << 10;
inline constexpr int64_t kMostRangeBytes = 32 << 20;
// Times of INT96 have days of any year; nanoseconds would hold those of 1677 to 2262 only.
inline constexpr arrow::TimeUnit::type kInt96Unit = arrow::TimeUnit::MICRO;

// An open file, from which row groups are read.
struct OpenedFile {
  std::shared_ptr<RangedFile> file;
  std::shared_ptr<parquet::FileMetaData> metadata;
  const parquet::arrow::SchemaManifest* manifest;
};

struct RowsChoice {
  std::vector<int64_t> groups;
  std::vector<int32_t> columns;  // top-level columns
  int64_t batch_rows;
  bool dictionaries;  // strings that are stored with dictionaries come as dictionary arrays
};

// The numbers of the stored columns that make up a top-level column.
std::vector<int> LeavesOf(const parquet::arrow::SchemaManifest& manifest, int32_t column);

class GroupRows {
 public:
  // `opened` outlives this. The choice lies within the file.
  static arrow::Result<std::unique_ptr<GroupRows>> Make(const OpenedFile& opened,
                                                        RowsChoice choice);

  // The chosen columns in the order of the choice.
  const std::shared_ptr<arrow::Schema>& schema() const { return schema_; }
  // Null at the end. May throw.
  arrow::Result<std::shared_ptr<arrow::RecordBatch>> Next();

 private:
  GroupRows(const OpenedFile& opened, RowsChoice choice)
      : opened_(opened), choice_(std::move(choice)) {}
  arrow::Status Prepare();
  arrow::Result<std::unique_ptr<parquet::arrow::FileReader>> NewReader(bool buffered) const;
  arrow::Status OpenGroup(int64_t group);
  // Counts the rows of the open group against the footer's number.
  arrow::Status CloseGroup();
  arrow::Status Check(const arrow::RecordBatch& batch) const;

  const OpenedFile opened_;
  const RowsChoice choice_;
  int num_distinct_ = 0;           // chosen columns
  std::vector<int> leaves_;        // stored columns of the distinct chosen columns, ascending
  std::vector<int> positions_;     // of each chosen column among the distinct ones
  std::vector<int> dictionaries_;  // leaves that are read as dictionary arrays
  std::shared_ptr<arrow::Schema> schema_;
  std::unique_ptr<parquet::arrow::FileReader> whole_, buffered_;  // made when first used
  size_t next_group_ = 0;
  // The open group.
  std::unique_ptr<arrow::RecordBatchReader> rows_;
  int64_t rows_left_ = 0;
};

}  // namespace sluice_arrow
