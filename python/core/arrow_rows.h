// The batches of one rank out of a stream of Arrow's columns, such as a table of pyarrow or polars.
//
// The columns are those that the job's features, label and weight name, as in Parquet, and cells
// mean what they mean there (arrow_columns.h, feature_schema.h), so the same rows make the same
// numbers and keys. Other columns are left out. Without data.label the label is the column `label`,
// which must be there. Without data.weight_column the weight is `weight` where there is one,
// else 1. Batches have `batch_rows` rows, the last one fewer, wherever the stream's own batches
// end. They are dealt to the ranks in turn.
//
// Memory: one batch of the stream, and the batch in the making.
//
// Thread safety: one thread at a time.
//
// Source: Apache Arrow, "The Arrow C data interface" and "The Arrow C stream interface".
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/arrow/arrow_c_data.h"
#include "common/arrow/parquet.h"
#include "model/data/arrow_columns.h"
#include "model/features/batch.h"
#include "model/features/feature_schema.h"
#include "proto/config.pb.h"
#include "python/core/given_batch.h"

namespace sluice {

class ArrowRows {
 public:
  struct Part {
    size_t batch_rows = 0;  // at least 1
    uint32_t rank = 0, world_size = 1;
    uint64_t start = 0;      // the first batch of the rank that is wanted
    bool need_label = true;  // false: labels and weights that are missing or wrong are 0 and 1
  };

  // Takes over *stream. `job` is effective, and that of a program. INVALID_ARGUMENT names
  // a column that is not there, or is there twice; UNIMPLEMENTED one whose type is not read.
  static absl::StatusOr<std::unique_ptr<ArrowRows>> Create(ArrowArrayStream* stream,
                                                           const JobConfig& job, const Part& part);
  ~ArrowRows();

  // Null at the end. INVALID_ARGUMENT names the column and the row that cannot be used, or says
  // what the stream reports.
  absl::StatusOr<std::shared_ptr<GivenBatch>> Next();
  // Rows until now, those of other ranks included.
  uint64_t rows() const { return row_; }

 private:
  explicit ArrowRows(const Part& part) : part_(part) {}
  absl::Status Bind(const ArrowSchema& schema, const JobConfig& job);
  absl::Status StreamError(int code);
  // False at the end of the stream.
  absl::StatusOr<bool> NextArray();
  // Appends `n` rows from used_ on.
  absl::Status Append(size_t n, Batch* batch);

  const Part part_;
  ArrowArrayStream stream_ = {};
  std::shared_ptr<const FeatureSchema> schema_;
  std::unique_ptr<ColumnAppender> appender_;
  std::unique_ptr<ArrowColumns> columns_;
  std::unique_ptr<ArrowBatch> array_;  // the stream's batch; null: none
  size_t used_ = 0;                    // rows of it
  uint64_t row_ = 0;                   // of the stream
  uint64_t batches_ = 0;               // of the rank, those before `start` too
  bool ended_ = false;
};

}  // namespace sluice
