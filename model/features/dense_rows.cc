#include "model/features/dense_rows.h"

#include "absl/strings/str_cat.h"
#include "model/features/feature_use.h"

namespace sluice {
namespace {

// Why `dense` cannot be true for this feature; empty if it can.
std::string Misuse(const Feature& feature) {
  if (!HasKeys(feature)) return "has no effect on a plain number; remove it, or add boundaries";
  if (!HasRows(feature))
    return "has no effect: only crosses use this feature, so it has no rows; remove it";
  if (feature.has_cross() && feature.cross().hash_buckets() == 0)
    return "needs hash_buckets, which bounds the rows of the table; add it, or remove dense";
  const CategoricalFeature& categorical = feature.categorical();
  if (feature.has_categorical() && categorical.hash_buckets() == 0 &&
      categorical.vocabulary().empty()) {
    return "needs hash_buckets or a vocabulary, which bounds the rows of the table; add one, or "
           "remove dense";
  }
  return "";
}

}  // namespace

bool HasRows(const Feature& feature) {
  return HasKeys(feature) && (InWide(feature) || InDeep(feature));
}

bool IsDense(const Feature& feature) {
  return feature.has_numeric()       ? feature.numeric().dense()
         : feature.has_categorical() ? feature.categorical().dense()
                                     : feature.cross().dense();
}

uint64_t DenseRowsOf(const Feature& feature) {
  if (feature.has_numeric()) return static_cast<uint64_t>(feature.numeric().boundaries_size()) + 1;
  if (feature.has_cross()) return feature.cross().hash_buckets();
  const CategoricalFeature& categorical = feature.categorical();
  if (categorical.hash_buckets() > 0) return categorical.hash_buckets();
  // The row after those of the vocabulary is for values outside it, and the one after that for
  // missing values.
  return static_cast<uint64_t>(categorical.vocabulary_size()) + 1 + categorical.missing_is_value();
}

std::string DensePath(const JobConfig& job, int index) {
  const Feature& feature = job.features(index);
  return absl::StrCat("features[", index, "].",
                      feature.has_numeric()       ? "numeric"
                      : feature.has_categorical() ? "categorical"
                                                  : "cross",
                      ".dense");
}

std::vector<ConfigProblem> FindDenseProblems(const JobConfig& job) {
  std::vector<ConfigProblem> problems;
  int first_dense = -1, first_sparse = -1;
  uint64_t rows = 0;
  for (int i = 0; i < job.features_size(); ++i) {
    const Feature& feature = job.features(i);
    if (!IsDense(feature)) {
      if (first_sparse < 0 && HasRows(feature)) first_sparse = i;
      continue;
    }
    const std::string misuse = Misuse(feature);
    if (!misuse.empty()) {
      problems.push_back({DensePath(job, i), absl::StrCat("true ", misuse)});
      continue;
    }
    if (first_dense < 0) first_dense = i;
    if (rows > kMaxDenseRows) continue;  // said once
    const uint64_t own = DenseRowsOf(feature);
    // Never adds two large numbers, so the sum cannot overflow.
    rows = own > kMaxDenseRows ? own : rows + own;
    if (rows <= kMaxDenseRows) continue;
    problems.push_back(
        {DensePath(job, i),
         absl::StrCat("true gives '", feature.name(), "' ", own,
                      " rows, and the dense features more than ", kMaxDenseRows,
                      " together; lower hash_buckets, or remove dense from all features, so that "
                      "they use the sparse table")});
  }
  if (first_dense < 0 || first_sparse < 0) return problems;
  const std::string& dense = job.features(first_dense).name();
  problems.push_back(
      {DensePath(job, first_sparse),
       absl::StrCat("false for '", job.features(first_sparse).name(), "' contradicts true for '",
                    dense,
                    "': all categorical, bucketed and crossed features of a job are dense, or "
                    "none; set it here too, or remove it from '",
                    dense, "'")});
  return problems;
}

}  // namespace sluice
