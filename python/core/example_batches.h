// Batches for the network of a program without a cluster: from data files, from values in memory,
// from tables, or as the program's own source gives them, with the features of a saved model's job.
//
// Keys, numbers and labels are made as in training. The rows come from elsewhere: a batch names its
// distinct keys by table, and where the rows of each feature are among them.
//
// Memory: the text of a piece of a file (1 MiB), its examples, and the batch.
//
// Thread safety: ExampleBatches and KeyedBatch are immutable; a FileBatches or TableBatches belongs
// to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/data/data_source.h"
#include "model/features/batch.h"
#include "model/program/program_shape.h"
#include "model/program/program_spec.h"
#include "proto/config.pb.h"
#include "python/core/arrow_rows.h"
#include "python/core/given_batch.h"
#include "python/core/slot_rows.h"

namespace sluice {

// Examples and their distinct keys. The row of a key is its place in keys(table).
class KeyedBatch {
 public:
  KeyedBatch(const ProgramShape& shape, Batch examples);

  const Batch& examples() const { return examples_; }
  // By table of the shape, in the order of their first use.
  const std::vector<uint64_t>& keys(size_t table) const { return keys_.at(table); }
  const SlotRows& rows() const { return rows_; }

 private:
  Batch examples_;
  std::vector<std::vector<uint64_t>> keys_;  // by table
  SlotRows rows_;
};

class FileBatches;
class TableBatches;

class ExampleBatches {
 public:
  // `job`: effective, as a saved model has it. INVALID_ARGUMENT: its model is not a program.
  static absl::StatusOr<std::shared_ptr<const ExampleBatches>> Create(JobConfig job);

  const ProgramShape& shape() const { return spec_->shape(); }

  // One column of a data file: its name, and the cell of each example; nothing: it is missing, as
  // are an empty cell and csv.missing.
  using Column = std::pair<std::string, std::vector<std::optional<std::string>>>;
  // A batch of all columns that the features need. Label and weight may be left out: then labels
  // are 0 and weights 1. INVALID_ARGUMENT names the column, example and value that are wrong.
  absl::StatusOr<std::unique_ptr<KeyedBatch>> FromColumns(const std::vector<Column>& columns) const;
  // The columns of vectors, whose cells may be written as "[0.5, 1]".
  std::vector<std::string> VectorColumns() const;

  // Whether the program gave the data itself, so that the job has no columns.
  bool own_data() const { return given_ != nullptr; }
  // A batch as the program's source gives it; needs own_data(). INVALID_ARGUMENT as
  // GivenFeatures::Fill.
  absl::StatusOr<std::unique_ptr<KeyedBatch>> FromGiven(const GivenBatch& given) const;

  // The examples of files in the format of the job's data, in their order; `patterns` are files or
  // globs. The files may lack a label. INVALID_ARGUMENT: the job names no format. Other
  // statuses as DataSource::CheckColumns and ExpandFiles.
  static absl::StatusOr<std::unique_ptr<FileBatches>> Read(
      std::shared_ptr<const ExampleBatches> batches, const std::vector<std::string>& patterns,
      size_t batch_size);
  // The rows of a table, in their order, with the columns of the job (arrow_rows.h). Takes over
  // *stream. Statuses as ArrowRows::Create.
  static absl::StatusOr<std::unique_ptr<TableBatches>> ReadTable(
      std::shared_ptr<const ExampleBatches> batches, ArrowArrayStream* stream, size_t batch_size);

 private:
  friend class FileBatches;
  ExampleBatches() = default;

  JobConfig job_;
  std::unique_ptr<ModelSpec> owner_;  // spec_
  const ProgramSpec* spec_ = nullptr;
  std::unique_ptr<DataSource> source_;          // null: the job names no format
  std::shared_ptr<const GivenFeatures> given_;  // null: the job reads files
};

class TableBatches {
 public:
  // The next batch_size examples, fewer at the end; null when there are no more. Statuses as
  // ArrowRows::Next.
  absl::StatusOr<std::unique_ptr<KeyedBatch>> Next();

 private:
  friend class ExampleBatches;
  TableBatches(std::shared_ptr<const ExampleBatches> batches, std::unique_ptr<ArrowRows> rows)
      : batches_(std::move(batches)), rows_(std::move(rows)) {}

  const std::shared_ptr<const ExampleBatches> batches_;
  const std::unique_ptr<ArrowRows> rows_;
};

class FileBatches {
 public:
  // The next batch_size examples, fewer at the end; null when there are no more. Malformed lines
  // are left out. FAILED_PRECONDITION: there are more of them than data.max_bad_lines, or a file
  // has changed.
  absl::StatusOr<std::unique_ptr<KeyedBatch>> Next();
  // Malformed lines until now.
  uint64_t bad_lines() const { return bad_.count; }

 private:
  friend class ExampleBatches;
  FileBatches() = default;
  // Parses the next piece. False at the end of the last file.
  absl::StatusOr<bool> ReadPiece();

  std::shared_ptr<const ExampleBatches> batches_;
  size_t batch_size_ = 0;
  std::vector<std::string> files_;
  size_t next_file_ = 0;
  std::unique_ptr<ExampleStream> stream_;  // null: between two files
  std::unique_ptr<ExampleStream::Parser> parser_;
  ExampleStream::Text text_;
  ExampleStream::Piece piece_;
  size_t taken_ = 0;  // examples of the piece that are part of a batch
  BadLines bad_;
};

}  // namespace sluice
