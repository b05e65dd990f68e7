// A saved model in memory, scoring examples without a cluster.
//
// Invariants: the score of an example does not depend on the batch, the part or the number of
// threads it is computed with, and equals what evaluation computed from the same values. Memory:
// all rows of the model. Thread safety: one thread.
#pragma once

#include <cstdint>
#include <memory>
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

  // Of a saved model's folder. NOT_FOUND when it is no model, DATA_LOSS when it is damaged or its
  // tables are not those of its job.
  static absl::StatusOr<std::unique_ptr<Predictor>> Load(const std::string& model_dir, int threads);

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
  // Files or globs, in this order; the files of one glob by name. The label column may be missing.
  std::vector<std::string> data_files;
  std::string output_file;  // see ResolveOutput
  // Part `part` of `worker_num` contiguous parts; their outputs, one after another, are the output
  // of part -1: all.
  int worker_num = 1;
  int part = -1;
  int threads = 1;
};

struct PredictSummary {
  uint64_t examples = 0;       // scored
  BadLines bad;                // lines that are no example: their score is "nan"
  uint64_t max_bad_lines = 0;  // of the model's job
};

// Where an output path leads through symbolic links. A regular file, or none yet, is replaced when
// all is written; a pipe or device is written in place.
struct OutputTarget {
  std::string path;
  bool in_place = false;
};
OutputTarget ResolveOutput(const std::string& path);

// Writes one line ("%.9g" of the probability) for each data line, in input order.
absl::StatusOr<PredictSummary> PredictFile(const PredictOptions& options);

}  // namespace sluice
