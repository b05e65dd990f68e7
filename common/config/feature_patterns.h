// Expands features that stand for many. The name of such a feature holds a range, "C{1..26}", or a
// wildcard, "C*".
//
// Format:
//   A range is {FIRST..LAST} in decimal digits, both ends included. When an end has a leading zero,
//   both ends have the same number of digits, and so has each number: {01..26}. The column, if
//   given, and the features of a cross may hold a range of the same length, which goes in step. A
//   wildcard is one '*' in the name; it matches the columns that nothing else in the job uses.
//
// Thread safety: one thread; no file is read here.
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
  // `job` must outlive this object. Its features are as in the file until they are expanded.
  explicit FeaturePatterns(JobConfig* job);

  // Replaces each feature whose name holds a range by one feature a number. INVALID_ARGUMENT, with
  // the field's path (config_problem.h), if a range is malformed, empty or too long, if ranges that
  // go in step differ in length, or if two features get the same name.
  absl::Status ExpandRanges();

  // Whether ExpandWildcards has something to do, and so needs the columns.
  bool HasWildcards() const;
  // Replaces each feature whose name holds a '*' by one feature for each of `columns` (in the order
  // of a line) that it matches. A column that the label, the weight, another feature or an earlier
  // wildcard uses is left out. INVALID_ARGUMENT, with the field's path, if a wildcard matches no
  // column or if two features get the same name.
  // REQUIRES: ExpandRanges has succeeded.
  absl::Status ExpandWildcards(const std::vector<std::string>& columns);

  // Turns a path of the expanded job, such as "features[17].name", into the file's,
  // "features[3].name". Returns other paths unchanged.
  std::string PathInFile(const std::string& path) const;

 private:
  absl::Status CheckNames() const;

  JobConfig& job_;
  std::vector<std::string> written_;  // names in the file
  std::vector<int> origins_;          // index in the file of each feature of job_
};

}  // namespace sluice
