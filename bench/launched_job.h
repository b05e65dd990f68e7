// A whole job that `sluice launch` runs anew for each measurement, and its speed.
//
// Thread safety: one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/suite.h"
#include "bench/temporary_folder.h"
#include "proto/config.pb.h"

namespace sluice::bench {

// A job file, with the folders that the job needs: they are kept as long as it may be launched.
struct JobFile {
  std::string path;
  std::vector<std::shared_ptr<TemporaryFolder>> folders;
};

// Criteo TSV for the standard job: the files of settings.train_data, or generated ones, which the
// rows of one process share.
struct TrainData {
  std::shared_ptr<TemporaryFolder> made;  // null: the data was given by a flag
  std::string files;
};
absl::StatusOr<TrainData> DataFor(const Settings& settings);

// Writes a job that trains on that data.
absl::StatusOr<JobFile> WriteJob(const JobConfig& job, const TrainData& data);

// Finds configs/adult_wide_deep.textproto in a folder above that of this program. NOT_FOUND when
// this program lies outside of a source tree and of a bundle.
absl::StatusOr<JobFile> AdultJob();

class LaunchedJob {
 public:
  // `flags` give sluice launch the mode, pservers and workers.
  LaunchedJob(JobFile job, std::vector<std::string> flags, int epochs);

  // Thousand examples a second. The first epoch does not count when there are several: it parses
  // the data and creates the rows. Only training counts: the start, evaluations and the end of the
  // job do not. 0 when the job has failed; then stderr says why.
  double Measure() const;

 private:
  absl::StatusOr<double> ExamplesPerSecond() const;

  const JobFile job_;
  const std::vector<std::string> flags_;
  const int epochs_;
};

}  // namespace sluice::bench
