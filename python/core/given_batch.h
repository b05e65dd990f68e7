// Batches that a program gives, as it gives them, and how they become batches of the job.
//
// Values are whole numbers or numbers by feature. The keys are those that the native readers make
// of the same values: an integer of a HASHED feature hashes as its decimal text, and a RAW one is
// the key. Numbers are normalized as the job says. Or the batch is made already, from the columns
// of a table.
//
// Thread safety: GivenFeatures is immutable; the rest is plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/config/config_problem.h"
#include "model/features/batch.h"
#include "model/features/feature_compiler.h"
#include "proto/config.pb.h"

namespace sluice {

struct GivenBatch {
  struct Values {
    std::vector<int64_t> values;
    std::vector<int64_t> offsets;  // [n + 1]: as in SlotRows; empty: each example has one value
  };
  size_t n = 0;
  std::vector<float> label, weight;  // [n]; empty: 0 and 1
  // By ProgramShape::numbers: [n], or [n][dim] of vectors.
  std::vector<std::vector<double>> numbers;
  std::vector<Values> values;  // by ProgramShape::slots
  // The batch as the schema of the job has made it; null: it is made of the above.
  std::shared_ptr<const Batch> examples;
  uint64_t given_as = 0;  // the number by which the program knows the batch
};

// Features that cannot be those of a program that gives batches of plain values, which nobody
// hashes, splits or looks up. A table may have them.
std::vector<ConfigProblem> FindNotGiven(const JobConfig& job);
// Fields of data that are about columns, and mean nothing in a job without a table.
std::vector<ConfigProblem> FindOfColumns(const JobConfig& job);

class GivenFeatures {
 public:
  // `job` is effective, and its program gives the data. Statuses as CompileFeatures.
  static absl::StatusOr<std::shared_ptr<const GivenFeatures>> Create(const JobConfig& job);

  // Makes a batch of it, whose example ids are all `given_as`. INVALID_ARGUMENT names the feature
  // and the example that cannot be used; the batch is then undefined.
  absl::Status Fill(const GivenBatch& given, Batch* batch) const;

 private:
  GivenFeatures(CompiledFeatures features, std::vector<ConfigProblem> not_given)
      : features_(std::move(features)), not_given_(std::move(not_given)) {}
  absl::Status CheckSizes(const GivenBatch& given) const;
  absl::Status FillNumbers(const GivenBatch& given, Batch* batch) const;
  void FillKeys(const GivenBatch& given, Batch* batch) const;

  const CompiledFeatures features_;
  const std::vector<ConfigProblem> not_given_;
};

}  // namespace sluice
