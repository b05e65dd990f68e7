// Batches that a program gives, as it gives them, and how they become batches of the job.
//
// Values are whole numbers or numbers by feature. The keys are those that the native readers make
// of the same values: an integer of a HASHED feature hashes as its decimal text, and a RAW one is
// the key. Numbers are normalized as the job says.
//
// Thread safety: GivenFeatures is immutable; the rest is plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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
  std::vector<float> label, weight;         // [n]; empty: 0 and 1
  std::vector<std::vector<float>> numbers;  // by ProgramShape::numbers, [n] each
  std::vector<Values> values;               // by ProgramShape::slots
  uint64_t given_as = 0;                    // the number by which the program knows the batch
};

class GivenFeatures {
 public:
  // `job` is effective, and its program gives the data. Statuses as CompileFeatures.
  static absl::StatusOr<std::shared_ptr<const GivenFeatures>> Create(const JobConfig& job);

  // Makes a batch of it, whose example ids are all `given_as`. INVALID_ARGUMENT names the feature
  // and the example that cannot be used; the batch is then undefined.
  absl::Status Fill(const GivenBatch& given, Batch* batch) const;

 private:
  explicit GivenFeatures(CompiledFeatures features) : features_(std::move(features)) {}
  absl::Status CheckSizes(const GivenBatch& given) const;
  absl::Status FillNumbers(const GivenBatch& given, Batch* batch) const;
  void FillKeys(const GivenBatch& given, Batch* batch) const;

  const CompiledFeatures features_;
};

}  // namespace sluice
