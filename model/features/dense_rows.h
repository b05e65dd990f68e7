// The rows that features with `dense: true` have in dense tables, one for each key that the feature
// can have.
//
// Format:
//   hash_buckets B     B rows: a value's row is its hash modulo B. Values outside a vocabulary, and
//                      missing ones with missing_is_value, also have a hash
//   vocabulary of V    V + 1 rows: the values in their order, then all other values. With
//                      missing_is_value one more, for missing values
//   b boundaries       b + 1 rows: the buckets
//
// Features that only crosses use have no rows.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/config/config_problem.h"
#include "proto/config.pb.h"

namespace sluice {

// Row numbers [begin, end). Empty: the feature is not dense.
struct RowRange {
  uint64_t begin = 0, end = 0;
  uint64_t size() const { return end - begin; }
  bool empty() const { return begin == end; }
};

// Most rows of a job. Networks number them in 32 bits.
inline constexpr uint64_t kMaxDenseRows = uint64_t{1} << 31;

// True when the feature has weights or embeddings of its own, in the sparse table or in dense
// tables. A feature that only crosses use has none.
bool HasRows(const Feature& feature);
// The feature's `dense` field.
bool IsDense(const Feature& feature);
// REQUIRES: IsDense, and FindDenseProblems finds none.
uint64_t DenseRowsOf(const Feature& feature);
// The path of the `dense` field of features[index].
std::string DensePath(const JobConfig& job, int index);
// Problems of `dense` fields: keyed features of which only some are dense, features without a bound
// on their keys, more than kMaxDenseRows rows, fields without effect.
std::vector<ConfigProblem> FindDenseProblems(const JobConfig& job);

}  // namespace sluice
