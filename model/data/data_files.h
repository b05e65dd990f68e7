// Lists the data files of a job or a prediction as this host saw them at its start, and checks for
// changes since.
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
  // Expands the patterns of the job and looks at each file, through `env`, which outlives this.
  // With evaluate_only, ignores the patterns of training. Statuses as ExpandFiles and SampleFile.
  static absl::StatusOr<std::shared_ptr<const DataFiles>> See(const JobConfig& job, Env* env);
  // Looks at the files that a prediction reads; train() and eval() are empty. Statuses as
  // SampleFile.
  static absl::StatusOr<std::shared_ptr<const DataFiles>> SeeForPrediction(
      const std::vector<std::string>& paths, Env* env);

  // Sorted, without duplicates.
  const std::vector<std::string>& train() const { return train_; }
  const std::vector<std::string>& eval() const { return eval_; }
  // Adds the description of the files; the scheduler checks that all hosts see the same.
  void Report(IndexReport* report) const;

  // FAILED_PRECONDITION names the file and says what has changed: it is gone, was replaced, or has
  // another size or modification time. OK for a file that was not looked at.
  absl::Status CheckUnchanged(const std::string& path) const;
  // The same for an open file, whose identity is `now`.
  absl::Status CheckUnchanged(const std::string& path, const FileIdentity& now) const;
  absl::Status CheckAllUnchanged(const std::vector<std::string>& paths) const;

 private:
  absl::Status Look(const std::vector<std::string>& paths);
  absl::Status Changed(const std::string& path, const std::string& what) const;

  Env* env_ = nullptr;          // opens the files
  const char* reader_ = "job";  // what reads the files, for messages
  std::vector<std::string> train_, eval_;
  absl::flat_hash_map<std::string, FileSample> seen_;
};

}  // namespace sluice
