// The standard wide&deep job (26 hashed categories of dimension 10, 13 numbers, 400-400-400) and
// seeded data of Criteo's shape for it.
//
// Thread safety: functions without state.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "model/features/batch.h"
#include "proto/config.pb.h"

namespace sluice::bench {

constexpr int kStandardNumbers = 13;
constexpr int kStandardCategories = 26;
constexpr int kStandardDim = 10;

// Makes one example: log-normal counts, and categories whose frequency falls as rank^-1.2. Every
// value is a function of (seed, example).
struct StandardExample {
  int label = 0;
  uint32_t numbers[kStandardNumbers];
  uint64_t categories[kStandardCategories];
};
StandardExample MakeExample(uint64_t seed, uint64_t example);

// Writes `files` files DIR/part-N.tsv of Criteo TSV with `examples` lines in all.
absl::Status WriteStandardData(const std::string& dir, uint64_t examples, int files);

// Returns the job without strategy and output_dir. The job saves no model.
JobConfig StandardJob(const std::string& data_glob, uint32_t batch_size,
                      const OptimizerConfig& optimizer);

// Gives each category of the job `rows` rows in a dense table.
void UseDenseCategories(uint64_t rows, JobConfig* job);

// Makes a batch of the data in memory. Unique keys are numbered in `row_index` by first occurrence;
// returns how many there are.
size_t MakeStandardBatch(size_t n, Batch* batch, std::vector<uint32_t>* row_index);

}  // namespace sluice::bench
