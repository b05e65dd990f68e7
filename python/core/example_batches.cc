#include "python/core/example_batches.h"

#include <algorithm>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/config/own_data.h"
#include "common/places/places_env.h"
#include "model/data/expand_files.h"
#include "model/features/cell.h"

namespace sluice {
namespace {

constexpr uint64_t kReadBytes = 1 << 20;  // of text at a time

// The names that columns must or may have.
std::string NamesOf(const std::vector<std::string>& columns) {
  std::vector<std::string> named;
  for (const std::string& column : columns)
    if (!column.empty()) named.push_back(column);
  return absl::StrJoin(named, ", ");
}

}  // namespace

KeyedBatch::KeyedBatch(const ProgramShape& shape, Batch examples)
    : examples_(std::move(examples)), keys_(shape.tables.size()) {
  std::vector<absl::flat_hash_map<uint64_t, uint32_t>> places(shape.tables.size());
  std::vector<uint32_t> row_index(examples_.keys.size());
  const uint32_t* offset = examples_.key_offsets.data();
  for (size_t i = 0; i < examples_.n; ++i) {
    for (size_t s = 0; s < examples_.num_slots; ++s, ++offset) {
      const uint32_t table = shape.slots[s].table;
      for (uint32_t k = offset[0]; k < offset[1]; ++k) {
        const uint64_t key = examples_.keys[k];
        const auto next = static_cast<uint32_t>(keys_[table].size());
        const auto [place, added] = places[table].emplace(key, next);
        if (added) keys_[table].push_back(key);
        row_index[k] = place->second;
      }
    }
  }
  rows_.Fill(examples_, row_index.data());
}

absl::StatusOr<std::shared_ptr<const ExampleBatches>> ExampleBatches::Create(JobConfig job) {
  if (!job.model().has_program())
    return absl::InvalidArgumentError("the job's model is not a program");
  std::shared_ptr<ExampleBatches> batches(new ExampleBatches);
  SLUICE_ASSIGN_OR_RETURN(batches->owner_, ProgramSpec::Create(job));
  batches->spec_ = static_cast<const ProgramSpec*>(batches->owner_.get());
  if (job.data().format() != DataConfig::FORMAT_UNSPECIFIED) {
    SLUICE_ASSIGN_OR_RETURN(batches->source_,
                            DataSource::Create(job.data(), batches->spec_->schema(), AllPlaces()));
  }
  if (ProgramGivesData(job)) {
    SLUICE_ASSIGN_OR_RETURN(batches->given_, GivenFeatures::Create(job));
  }
  batches->job_ = std::move(job);
  return std::shared_ptr<const ExampleBatches>(std::move(batches));
}

std::vector<std::string> ExampleBatches::VectorColumns() const {
  std::vector<std::string> columns;
  for (const Feature& feature : job_.features()) {
    const NumericFeature& numeric = feature.numeric();
    if (numeric.has_dim())
      columns.push_back(numeric.column().empty() ? feature.name() : numeric.column());
  }
  return columns;
}

absl::StatusOr<std::unique_ptr<KeyedBatch>> ExampleBatches::FromColumns(
    const std::vector<Column>& columns) const {
  const FeatureSchema& schema = *spec_->schema();
  const std::vector<std::string>& wanted = schema.columns();
  std::vector<const Column*> by_place(wanted.size());
  const size_t n = columns.empty() ? 0 : columns[0].second.size();
  for (const Column& column : columns) {
    const auto found = std::find(wanted.begin(), wanted.end(), column.first);
    if (column.first.empty() || found == wanted.end()) {
      return absl::InvalidArgumentError(absl::StrCat("no feature of the job uses a column ",
                                                     QuotedCell(column.first), "; its columns are ",
                                                     NamesOf(wanted)));
    }
    if (column.second.size() != n) {
      return absl::InvalidArgumentError(absl::StrCat(
          "column ", QuotedCell(column.first), " has ", column.second.size(), " examples, and ",
          QuotedCell(columns[0].first), " ", n, "; all have the same number"));
    }
    by_place[static_cast<size_t>(found - wanted.begin())] = &column;
  }
  constexpr size_t kFeatures = 2;  // after label and weight
  for (size_t c = kFeatures; c < wanted.size(); ++c) {
    if (by_place[c] != nullptr) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("column ", QuotedCell(wanted[c]),
                     " is needed; give None for examples that have no value of it"));
  }
  const auto& absent = job_.data().csv().missing();
  std::vector<std::string_view> cells(wanted.size());
  const auto missing = std::make_unique<bool[]>(wanted.size());
  Batch batch;
  batch.Reset(schema.numerics().size(), schema.slots().size());
  batch.Reserve(n, schema.numerics().size(), schema.slots().size());
  for (size_t i = 0; i < n; ++i) {
    for (size_t c = 0; c < wanted.size(); ++c) {
      const std::optional<std::string>* cell =
          by_place[c] == nullptr ? nullptr : &by_place[c]->second[i];
      cells[c] = cell != nullptr && cell->has_value() ? std::string_view(**cell) : "";
      missing[c] =
          cells[c].empty() || std::find(absent.begin(), absent.end(), cells[c]) != absent.end();
    }
    const absl::Status added =
        schema.AppendExample(cells.data(), missing.get(), /*need_label=*/false, &batch);
    if (!added.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("example ", i, ": ", added.message()));
    }
  }
  return std::make_unique<KeyedBatch>(shape(), std::move(batch));
}

absl::StatusOr<std::unique_ptr<KeyedBatch>> ExampleBatches::FromGiven(
    const GivenBatch& given) const {
  if (given_ == nullptr)
    return absl::InvalidArgumentError("the job reads files: give the values by its columns");
  Batch batch;
  SLUICE_RETURN_IF_ERROR(given_->Fill(given, &batch));
  return std::make_unique<KeyedBatch>(shape(), std::move(batch));
}

absl::StatusOr<std::unique_ptr<FileBatches>> ExampleBatches::Read(
    std::shared_ptr<const ExampleBatches> batches, const std::vector<std::string>& patterns,
    size_t batch_size) {
  if (batch_size == 0) return absl::InvalidArgumentError("batch_size is 0; give 1 or more");
  if (batches->source_ == nullptr) {
    return absl::InvalidArgumentError(
        "the job has read no files (data.format), so it does not say how to read these; give their "
        "values by column");
  }
  std::unique_ptr<FileBatches> files(new FileBatches);
  for (const std::string& pattern : patterns) {
    google::protobuf::RepeatedPtrField<std::string> one;
    *one.Add() = pattern;
    SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> found,
                            ExpandFiles(one, AllPlaces(), "the working folder"));
    files->files_.insert(files->files_.end(), found.begin(), found.end());
  }
  if (files->files_.empty()) return absl::InvalidArgumentError("no data file is given");
  for (const std::string& file : files->files_)
    SLUICE_RETURN_IF_ERROR(batches->source_->CheckColumns(file, /*need_label=*/false));
  files->batch_size_ = batch_size;
  files->batches_ = std::move(batches);
  return files;
}

absl::StatusOr<std::unique_ptr<TableBatches>> ExampleBatches::ReadTable(
    std::shared_ptr<const ExampleBatches> batches, ArrowArrayStream* stream, size_t batch_size) {
  if (batch_size == 0) return absl::InvalidArgumentError("batch_size is 0; give 1 or more");
  ArrowRows::Part part;
  part.batch_rows = batch_size;
  part.need_label = false;
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<ArrowRows> rows,
                          ArrowRows::Create(stream, batches->job_, part));
  return std::unique_ptr<TableBatches>(new TableBatches(std::move(batches), std::move(rows)));
}

absl::StatusOr<std::unique_ptr<KeyedBatch>> TableBatches::Next() {
  SLUICE_ASSIGN_OR_RETURN(const std::shared_ptr<GivenBatch> given, rows_->Next());
  if (given == nullptr) return nullptr;
  return std::make_unique<KeyedBatch>(batches_->shape(), *given->examples);
}

absl::StatusOr<bool> FileBatches::ReadPiece() {
  while (stream_ != nullptr || next_file_ < files_.size()) {
    if (stream_ == nullptr) {
      parser_ = nullptr;  // before its stream
      ExampleStream::Options options;
      options.path = files_[next_file_++];
      SLUICE_ASSIGN_OR_RETURN(stream_, batches_->source_->OpenStream(options));
      parser_ = stream_->NewParser();
    }
    SLUICE_ASSIGN_OR_RETURN(const bool more, stream_->Read(kReadBytes, &text_));
    if (more) {
      SLUICE_RETURN_IF_ERROR(parser_->Parse(&text_, &piece_, &bad_));
      taken_ = 0;
      const uint64_t most = batches_->job_.data().max_bad_lines();
      if (bad_.count > most) return TooManyBadLines("the data", most, bad_, /*most=*/false);
      return true;
    }
    parser_ = nullptr;
    stream_ = nullptr;
  }
  return false;
}

absl::StatusOr<std::unique_ptr<KeyedBatch>> FileBatches::Next() {
  const ProgramShape& shape = batches_->shape();
  Batch batch;
  batch.Reset(shape.num_numeric(), shape.slots.size());
  while (batch.n < batch_size_) {
    if (taken_ == piece_.examples.n) {
      SLUICE_ASSIGN_OR_RETURN(const bool more, ReadPiece());
      if (!more) break;
      continue;
    }
    SLUICE_RETURN_IF_ERROR(batch.Append(piece_.examples, taken_, taken_));
    ++taken_;
  }
  if (batch.n == 0) return nullptr;
  return std::make_unique<KeyedBatch>(shape, std::move(batch));
}

}  // namespace sluice
