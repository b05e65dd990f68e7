// A saved model in memory, scoring examples without a cluster.
//
// Invariants: the score of an example does not depend on the batch, the part or the number of
// threads it is computed with, and equals what evaluation computed from the same values.
//
// Memory: all rows of the model.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/table/table_layout.h"
#include "model/data/data_source.h"
#include "model/model.h"
#include "proto/model.pb.h"

namespace sluice {

class Predictor {
 public:
  // Batches scored at once.
  static constexpr size_t kBatch = 2048;

  // Of a saved model's folder, whose model is in `models`. NOT_FOUND when it is no model, DATA_LOSS
  // when it is damaged or its tables are not those of its job.
  static absl::StatusOr<std::unique_ptr<Predictor>> Load(const std::string& model_dir, int threads,
                                                         const ModelList& models);

  const JobConfig& job() const { return job_; }
  const Model& model() const { return *model_; }

  // probabilities: [batch.n]. A key that the model does not have has its initial row.
  absl::Status Score(const Batch& batch, float* probabilities);

 private:
  Predictor() = default;
  absl::Status LoadDense(const std::string& dir, const Manifest& manifest,
                         const TableLayout& table);
  absl::Status LoadSparse(const std::string& dir, const Manifest& manifest,
                          std::shared_ptr<const TableLayout> table);

  JobConfig job_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<DenseNet> net_;
  std::vector<std::vector<float>> dense_;            // by Model::dense_tables()
  std::shared_ptr<const TableLayout> sparse_;        // null: no sparse table
  absl::flat_hash_map<uint64_t, uint32_t> row_ids_;  // key -> row of values_
  std::vector<float> values_;                        // [rows][dim]
  std::vector<float> batch_rows_;                    // [keys of a batch][dim]
  std::vector<uint32_t> row_index_;                  // 0, 1, ...
};

struct PredictOptions {
  std::string model_dir;
  // Files or globs, in this order; the files of one glob by name. A file that is named again is
  // scored again. Or "-" alone: standard input, with worker_num 1. The label column may be missing.
  std::vector<std::string> data_files;
  // The data_files as all parts must find them; set by FixInput. Null: PredictFile looks at them.
  std::shared_ptr<const DataFiles> seen;
  std::string output_file;  // see ResolveOutput
  // Part `part` of `worker_num` contiguous parts; their outputs, one after another, are the output
  // of part -1: all.
  int worker_num = 1;
  int part = -1;
  int threads = 1;
  // Column of the data that is written before the score; "" for none.
  std::string id_column;
  bool replace = true;    // a file at output_file; false: ALREADY_EXISTS, and it stays as it is
  bool in_place = false;  // write output_file itself, which nobody else knows of
  // More lines that are no example are an error; unset: the model's job says how many.
  std::optional<uint64_t> max_bad_lines;
  // Told of the lines done so far, after each piece. May be null.
  std::function<void(uint64_t lines)> progress;
};

struct PredictSummary {
  uint64_t examples = 0;       // scored
  BadLines bad;                // lines that are no example: their score is "nan"
  uint64_t max_bad_lines = 0;  // of the model's job
};

// Replaces the patterns of data_files by the files that they name now, and looks at each, so that
// all parts of a prediction read the same. Nothing with standard input. Statuses as ExpandFiles and
// SampleFile.
absl::Status FixInput(PredictOptions* options);

// FAILED_PRECONDITION says why the scores of all parts together are not to be used: too many lines
// are no example, or all; or there is no line.
absl::Status CheckScored(const PredictOptions& options, const PredictSummary& summary);

// Writes one line for each data line, in input order: the probability as "%.9g", or "nan" for a
// line that is no example. With an id_column the line is the id as the data has it, a tab, and the
// score, so that the score follows the last tab; the id of a line that cannot be cut is empty.
//
// An error leaves output_file as it was, unless it is a pipe or device. FAILED_PRECONDITION when a
// file of the data changes meanwhile, and as CheckScored, which is not asked about a single part.
absl::StatusOr<PredictSummary> PredictFile(const PredictOptions& options);

}  // namespace sluice
