// Remembers the numbers of jobs beyond the life of a cluster, so that no two jobs whose logs are in
// one folder share an id: jobs with output folders of their own would otherwise all be NAME-1.
//
// A cluster whose log folder L is taken by another one gets L-2, L-3 and so on (sluice up), and
// these folders share one series of numbers.
//
// Format:
//   kHead, then a line `NAME NUMBER` for each name of a job, the newest last.
//
// Thread safety: one thread. Two schedulers that take a number at the same moment may take the
// same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/base/env.h"

namespace sluice {

class JobNumbers {
 public:
  static constexpr char kHead[] =
      "# The newest number of each job name, written by Sluice: job ids go on after it.\n";
  // Of the names, the newest stay.
  static constexpr size_t kMostNames = 10'000;
  static constexpr uint64_t kMostFolders = 100;  // of a series

  // An empty `path` remembers nothing. `env` outlives the object.
  JobNumbers(Env* env, std::string path) : env_(env), path_(std::move(path)) {}

  // The first number that no earlier job of this name has; 1 when nothing is known.
  uint64_t Next(const std::string& name) const;
  // ALREADY_EXISTS: a file that Sluice did not write has the name; nothing is changed.
  absl::Status Took(const std::string& name, uint64_t number);

 private:
  using Numbers = std::vector<std::pair<std::string, uint64_t>>;  // the newest last
  // False when the file is not ours. An absent one is empty.
  bool Read(const std::string& path, Numbers* numbers) const;
  // The files of the other folders of the series.
  std::vector<std::string> OthersOfSeries() const;

  Env* const env_;
  const std::string path_;
};

}  // namespace sluice
