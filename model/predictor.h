// A saved model in memory, which scores examples without a cluster.
//
// Invariants: The score of an example does not depend on the batch or the number of threads. It
// equals the score that evaluation computes from the same values.
//
// Memory: all rows of the model, once for all scorers; the activations of a batch in each scorer.
//
// Thread safety: immutable after Load; each Scorer belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "common/table/table_layout.h"
#include "model/features/batch.h"
#include "model/model.h"
#include "model/net/dense_net.h"
#include "proto/model.pb.h"

namespace sluice {

class Predictor {
 public:
  // Examples that a Scorer's memory is made for. A larger batch makes it grow.
  static constexpr size_t kBatch = 2048;

  // Computes scores from the values of a Predictor, which must outlive it.
  class Scorer {
   public:
    // probabilities: [batch.n]. A key that the model lacks gets its initial row.
    absl::Status Score(const Batch& batch, float* probabilities);

   private:
    friend class Predictor;
    Scorer(const Predictor* predictor, std::unique_ptr<DenseNet> net);

    // Copies the rows of the batch's keys to rows_. REQUIRES: the batch has the schema's slots.
    void FindRows(const Batch& batch);

    const Predictor& predictor_;
    const std::unique_ptr<DenseNet> net_;
    NetInput input_;  // its dense tables are the predictor's
    // By sparse table: [its keys of a batch][dim], and longer after larger batches.
    std::vector<std::vector<float>> rows_;
    std::vector<uint32_t> row_index_;  // [keys of a batch]
  };

  // Loads the saved model in the folder `model_dir`; `models` must have its kind of model. `env` is
  // used during the call only. NOT_FOUND if the folder is not a model; DATA_LOSS if it is damaged
  // or its tables differ from its job's; INVALID_ARGUMENT if it is a program's and `models` has no
  // network for it.
  static absl::StatusOr<std::unique_ptr<Predictor>> Load(const std::string& model_dir,
                                                         const ModelList& models, Env* env);

  const JobConfig& job() const { return job_; }
  const Model& model() const { return *model_; }

  // Makes a scorer whose network computes with `threads` threads.
  absl::StatusOr<std::unique_ptr<Scorer>> NewScorer(int threads) const;

 private:
  struct SparseTable {
    std::shared_ptr<const TableLayout> layout;
    absl::flat_hash_map<uint64_t, uint32_t> row_ids;  // key -> row of values
    std::vector<float> values;                        // [rows][dim]
    // The saved row of the key, or its initial one.
    void CopyRow(uint64_t key, float* to) const;
  };

  Predictor() = default;
  absl::Status LoadDense(const std::string& dir, const Manifest& manifest, const TableLayout& table,
                         Env* env);
  absl::Status LoadSparse(const std::string& dir, const Manifest& manifest,
                          std::shared_ptr<const TableLayout> layout, Env* env);

  JobConfig job_;
  std::unique_ptr<Model> model_;
  std::vector<std::vector<float>> dense_;  // by Model::dense_tables()
  std::vector<SparseTable> sparse_;        // by Model::sparse_tables()
};

}  // namespace sluice
