// The data files of a job as this host saw them when the job began: which they are, and that they
// stay what they were.
//
// Thread safety: immutable.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/data/text_reader.h"
#include "proto/config.pb.h"
#include "proto/scheduler.pb.h"

namespace sluice {

class DataFiles {
 public:
  // Expands the patterns of the job (those of training not with evaluate_only) and looks at each
  // file. Statuses as ExpandFiles and SampleFile.
  static absl::StatusOr<std::shared_ptr<const DataFiles>> See(const JobConfig& job);

  // Sorted, each once.
  const std::vector<std::string>& train() const { return train_; }
  const std::vector<std::string>& eval() const { return eval_; }
  // What the other hosts must see too.
  void Report(IndexReport* report) const;

  // FAILED_PRECONDITION names the file and says what has changed: it is gone, was replaced, has
  // another size or another time of change. OK for a file that is not one of the job's.
  absl::Status CheckUnchanged(const std::string& path) const;
  // The same of a file that was opened.
  absl::Status CheckUnchanged(const std::string& path, const FileIdentity& now) const;
  absl::Status CheckAllUnchanged(const std::vector<std::string>& paths) const;

 private:
  std::vector<std::string> train_, eval_;
  absl::flat_hash_map<std::string, FileSample> seen_;
};

}  // namespace sluice
