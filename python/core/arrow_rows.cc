#include "python/core/arrow_rows.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "model/data/file_columns.h"
#include "model/program/program_rules.h"

namespace sluice {
namespace {

constexpr char kUsualLabel[] = "label";
constexpr char kUsualWeight[] = "weight";

bool HasColumn(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

absl::Status OfSource(const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("the source: ", status.message()));
}

// Says how to name or add the label's column, which a table lacks.
absl::Status WithAdviceOnLabel(const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat(status.message(),
                                   "; name the label's column in the job, data { label { column: "
                                   "\"...\" } }, or add a column \"label\""));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ArrowRows>> ArrowRows::Create(ArrowArrayStream* stream,
                                                             const JobConfig& job,
                                                             const Part& part) {
  std::unique_ptr<ArrowRows> rows(new ArrowRows(part));
  rows->stream_ = std::exchange(*stream, ArrowArrayStream{});
  ArrowOwner<ArrowSchema> schema;
  SLUICE_RETURN_IF_ERROR(
      rows->StreamError(rows->stream_.get_schema(&rows->stream_, schema.Fill())));
  SLUICE_RETURN_IF_ERROR(rows->Bind(*schema, job));
  return rows;
}

ArrowRows::~ArrowRows() {
  array_.reset();
  if (stream_.release != nullptr) stream_.release(&stream_);
}

absl::Status ArrowRows::Bind(const ArrowSchema& schema, const JobConfig& job) {
  const auto paths = ArrowPathsOf(schema);
  if (!paths.ok()) return absl::InvalidArgumentError("the source is no table: it has no columns");
  std::vector<std::string> names;
  for (const ArrowPath& path : *paths) names.push_back(path.name);
  // Columns and their options are those of a job that reads the table from Parquet files.
  JobConfig of_table = job;
  DataConfig& data = *of_table.mutable_data();
  data.set_format(DataConfig::PARQUET);
  data.clear_train_files();
  data.clear_eval_files();
  const FeatureUse use = ProgramUseOf(job);
  SLUICE_ASSIGN_OR_RETURN(schema_, FeatureSchema::Create(of_table, use));
  if (data.weight_column().empty() && HasColumn(names, kUsualWeight) &&
      !HasColumn(schema_->columns(), kUsualWeight)) {
    data.set_weight_column(kUsualWeight);
    SLUICE_ASSIGN_OR_RETURN(schema_, FeatureSchema::Create(of_table, use));
  }
  appender_ = schema_->NewColumnAppender();
  const auto bound = BindColumns(schema_->columns(), names, part_.need_label, "the source");
  if (!bound.ok()) {
    // The label is the first column that is looked for.
    const bool lacks_label =
        part_.need_label && !job.data().has_label() && !HasColumn(names, kUsualLabel);
    return lacks_label ? WithAdviceOnLabel(bound.status()) : bound.status();
  }
  std::vector<ArrowColumns::Source> sources;
  for (const int place : *bound) {
    ArrowColumns::Source source;
    if (place >= 0) source.steps = (*paths)[static_cast<size_t>(place)].steps;
    sources.push_back(std::move(source));
  }
  auto columns = ArrowColumns::Create(schema, std::move(sources));
  if (!columns.ok()) return OfSource(columns.status());
  columns_ = *std::move(columns);
  return absl::OkStatus();
}

absl::Status ArrowRows::StreamError(int code) {
  if (code == 0) return absl::OkStatus();
  const char* const why = stream_.get_last_error(&stream_);
  return absl::InvalidArgumentError(
      absl::StrCat("the source cannot be read: ", why == nullptr ? std::strerror(code) : why));
}

absl::StatusOr<bool> ArrowRows::NextArray() {
  if (ended_) return false;
  array_.reset();
  ArrowOwner<ArrowArray> array;
  SLUICE_RETURN_IF_ERROR(StreamError(stream_.get_next(&stream_, array.Fill())));
  used_ = 0;
  ended_ = array.empty();
  if (!ended_) array_ = std::make_unique<ArrowBatch>(std::move(array));
  return !ended_;
}

absl::StatusOr<std::shared_ptr<GivenBatch>> ArrowRows::Next() {
  auto batch = std::make_shared<Batch>();
  batch->Reset(schema_->numerics().size(), schema_->slots().size());
  while (true) {
    // Row numbers of the next batch that this rank wants.
    const uint64_t number = std::max(batches_, part_.start) * part_.world_size + part_.rank;
    const uint64_t begin = number * part_.batch_rows, end = begin + part_.batch_rows;
    if (row_ == end) break;
    if (array_ == nullptr || used_ == array_->rows()) {
      SLUICE_ASSIGN_OR_RETURN(const bool more, NextArray());
      if (!more) break;
      continue;
    }
    const uint64_t left = array_->rows() - used_;
    const auto take = static_cast<size_t>(std::min(left, row_ < begin ? begin - row_ : end - row_));
    if (row_ >= begin) SLUICE_RETURN_IF_ERROR(Append(take, batch.get()));
    used_ += take;
    row_ += take;
  }
  batches_ = std::max(batches_, part_.start) + 1;
  if (batch->n == 0) return nullptr;
  auto given = std::make_shared<GivenBatch>();
  given->n = batch->n;
  given->examples = std::move(batch);
  return given;
}

absl::Status ArrowRows::Append(size_t n, Batch* batch) {
  for (size_t done = 0; done < n;) {
    const size_t rows = std::min(n - done, ColumnAppender::kUsualRows);
    const auto cells = columns_->Read(array_.get(), used_ + done, rows);
    if (!cells.ok()) return OfSource(cells.status());
    absl::Status refused;
    SLUICE_RETURN_IF_ERROR(appender_->Append(
        cells->data(), rows, part_.need_label, batch, [&](size_t row, const absl::Status& why) {
          if (!refused.ok()) return;
          // Rows are counted from 0, the beginning of the stream.
          refused = absl::InvalidArgumentError(
              absl::StrCat("the source's row ", row_ + done + row, ": ", why.message()));
        }));
    SLUICE_RETURN_IF_ERROR(refused);
    done += rows;
  }
  return absl::OkStatus();
}

}  // namespace sluice
