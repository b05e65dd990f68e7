// Features that stand for many: their name holds a range, "C{1..26}", or a wildcard, "C*".
//
// Format: a range is {FIRST..LAST} in decimal digits, both ends included. When an end has a leading
// zero, both have the same number of digits, and so has each number: {01..26}. The column, when it
// is given, and the features of a cross hold a range of the same length and go in step. A wildcard
// is one '*' in the name; it matches the columns that nothing else of the job uses.
//
// Thread safety: pure; no file is read here.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/config.pb.h"

namespace sluice {

// Most features of a job after expansion.
constexpr size_t kMaxFeatures = 100'000;

class FeaturePatterns {
 public:
  // `job` outlives this. Its features are those of the file until they are expanded.
  explicit FeaturePatterns(JobConfig* job);

  // Replaces each feature whose name holds a range by one feature a number. INVALID_ARGUMENT, with
  // the field's path (field_error.h), when a range is malformed, empty or too long, when ranges
  // that go in step differ in length, and when two features get the same name.
  absl::Status ExpandRanges();

  // Whether ExpandWildcards has something to do, and so needs the columns.
  bool HasWildcards() const;
  // After ExpandRanges: replaces each feature whose name holds a '*' by one feature for each of
  // `columns` (in the order of a line) that it matches. A column that the label, the weight,
  // another feature or an earlier wildcard uses is left out. INVALID_ARGUMENT, with the field's
  // path, when none is left, and when two features get the same name.
  absl::Status ExpandWildcards(const std::vector<std::string>& columns);

  // "features[3].name" of the file for a path of the expanded job, "features[17].name"; other paths
  // as they are.
  std::string PathInFile(const std::string& path) const;

 private:
  absl::Status CheckNames() const;

  JobConfig& job_;
  std::vector<std::string> written_;  // names in the file
  std::vector<int> origins_;          // for each feature of job_ its index in the file
};

}  // namespace sluice
