// Checks the hosts' answers before anything is started there, and describes each problem.
//
// Thread safety: plain data and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "cli/hosts/host_list.h"
#include "proto/config.pb.h"

namespace sluice::cli {

constexpr absl::Duration kMostClockSkew = absl::Seconds(30);
// Keys, logs and the scheduler's state of a short job.
constexpr uint64_t kLeastFreeBytes = 16 << 20;

// The answers of one host.
struct HostFacts {
  std::string name;
  std::string problem;         // it does not answer at all; then nothing below is known
  std::string version;         // as `sluice --version` prints it there
  absl::Duration clock_ahead;  // of the launcher's
  uint64_t free_bytes = 0;     // in the guard's folder
  std::string folder;
  std::vector<std::string> broken_programs;  // "sluice-worker: error while loading ..."
  std::vector<std::string> path_problems;  // "output_dir /x: there is another folder of this name"
};

struct CheckRules {
  std::string version;  // as it is here
  bool tls = true;
};

struct HostReport {
  std::vector<std::string> errors;  // "b: ..."
  std::vector<std::string> warnings;
};

// Everything that keeps the job from running there, a line for each, in the order of the hosts.
HostReport ReportOnHosts(const std::vector<HostFacts>& hosts, const CheckRules& rules);

// A file or folder that all hosts must see as the launcher does.
struct SharedPath {
  std::string what;  // "data.train_files"
  std::string path;  // absolute, or relative to the current folder
};

struct SharedPaths {
  std::vector<SharedPath> folders;  // that exist: all hosts must see a new file in them
  std::vector<SharedPath> files;    // of the same size everywhere
  bool relative = false;            // a path is relative, so all need the launcher's current folder
};

// The most data files whose sizes are compared.
constexpr size_t kMostFiles = 500;
// The paths of a job, as they are here. Those at object stores and web servers are left out. A
// folder that does not exist yet stands for the nearest one above it that does.
SharedPaths PathsOfJob(const JobConfig& job, const std::string& default_output);

}  // namespace sluice::cli
