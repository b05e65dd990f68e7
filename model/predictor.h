// A saved model in memory, which scores examples without a cluster.
//
// Invariants: The score of an example does not depend on the batch, the part or the number of
// threads. It equals the score that evaluation computes from the same values.
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
#include "common/base/env.h"
#include "common/table/table_layout.h"
#include "model/data/data_source.h"
#include "model/model.h"
#include "proto/model.pb.h"

namespace sluice {

class Predictor {
 public:
  // Most examples that PredictFile scores at once.
  static constexpr size_t kBatch = 2048;

  // Loads the saved model in the folder `model_dir`; `models` must have its kind of model. `env` is
  // used during the call only. NOT_FOUND if the folder is not a model; DATA_LOSS if it is damaged
  // or its tables differ from its job's.
  static absl::StatusOr<std::unique_ptr<Predictor>> Load(const std::string& model_dir, int threads,
                                                         const ModelList& models, Env* env);

  const JobConfig& job() const { return job_; }
  const Model& model() const { return *model_; }

  // probabilities: [batch.n]. A key that the model lacks gets its initial row.
  absl::Status Score(const Batch& batch, float* probabilities);

 private:
  Predictor() = default;
  absl::Status LoadDense(const std::string& dir, const Manifest& manifest, const TableLayout& table,
                         Env* env);
  absl::Status LoadSparse(const std::string& dir, const Manifest& manifest,
                          std::shared_ptr<const TableLayout> table, Env* env);

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
  Env* env = nullptr;  // required; for the files of the model
  std::string model_dir;
  // Files or globs, scored in this order; the files of one glob in the order of their names. A file
  // that is named twice is scored twice. "-" is standard input; it must be the only entry, with
  // worker_num 1. The label column may be missing.
  std::vector<std::string> data_files;
  // The state of data_files that all parts must find, set by FixInput. Null: PredictFile calls
  // FixInput.
  std::shared_ptr<const DataFiles> seen;
  std::string output_file;  // see ResolveOutput
  // Scores part `part` of `worker_num` contiguous parts; -1: all parts. The outputs of the parts in
  // order, concatenated, equal the output of -1.
  int worker_num = 1;
  int part = -1;
  int threads = 1;
  // Column of the data that is written before each score; "" for none.
  std::string id_column;
  bool replace = true;  // false: a file at output_file is kept, with ALREADY_EXISTS
  // output_file is a part that this process makes for its parent (CreateUnfinished), and that
  // nobody else reads before it is complete.
  bool in_place = false;
  // More malformed lines than this are an error. Unset: data.max_bad_lines of the model's job.
  std::optional<uint64_t> max_bad_lines;
  // Called after each piece with the number of lines done so far. May be null.
  std::function<void(uint64_t lines)> progress;
};

struct PredictSummary {
  uint64_t examples = 0;       // scored
  BadLines bad;                // lines that cannot be parsed; they score "nan"
  uint64_t max_bad_lines = 0;  // of the model's job
};

// Replaces the patterns of data_files by the files that they match now and records the state of
// each file, so that all parts of a prediction read the same data. Does nothing with standard
// input. Statuses as ExpandFiles and SampleFile.
absl::Status FixInput(PredictOptions* options);

// FAILED_PRECONDITION if the scores of all parts together must not be used: too many lines, or all
// of them, are malformed, or there are no lines.
absl::Status CheckScored(const PredictOptions& options, const PredictSummary& summary);

// Writes one line for each data line, in input order: the probability as "%.9g", or "nan" for a
// line that cannot be parsed. With an id_column each line is the id as the data has it, a tab, and
// the score: the score always follows the last tab. The id is empty if the line cannot be split
// into columns.
//
// An error leaves output_file unchanged, unless it is a pipe or device. FAILED_PRECONDITION if a
// data file changes meanwhile, or, when all parts are scored, as CheckScored.
absl::StatusOr<PredictSummary> PredictFile(const PredictOptions& options);

}  // namespace sluice
