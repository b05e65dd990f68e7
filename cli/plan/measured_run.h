// Collects what the daemons of a measured job count on their /metrics pages.
//
// Thread safety: plain data, and functions that are safe from any thread.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/plan/measured_windows.h"
#include "common/security/tls_files.h"

namespace sluice::plan {

// The /metrics page of a daemon on this host.
//
// Thread safety: immutable.
class MetricsPage {
 public:
  // `address` is HOST:PORT of an admin port. With `certificate` it has TLS: the daemon checks this
  // process's certificate, but its own is not checked, so read only daemons of a cluster that this
  // process has started on loopback. UNAVAILABLE names the address.
  static absl::StatusOr<MetricsPage> Fetch(const std::string& address,
                                           const TlsFiles& certificate = {});
  // Reads Prometheus text. Lines that it does not understand are skipped.
  explicit MetricsPage(const std::string& text);

  // Sums the series of the metric; 0 when there is none.
  double Sum(const std::string& name) const;
  // The values of the metric by one of its labels.
  std::map<std::string, double> By(const std::string& name, const std::string& label) const;

 private:
  std::multimap<std::string, std::pair<std::string, double>> series_;  // name -> labels, value
};

// The memory of all pservers together. `process`: what their processes use besides the tables.
struct TableMemory {
  double dense_bytes = 0, rows = 0, row_bytes = 0, process = 0;
};

// The sums over the pages of all daemons at one moment.
struct JobCounters {
  Reading reading;  // at_s is 0
  TableMemory memory;
  double epoch = 0;        // of the worker, from 1
  double shm_streams = 0;  // of the pservers
};
void AddWorkerPage(const MetricsPage& page, JobCounters* counters);
void AddPserverPage(const MetricsPage& page, JobCounters* counters);

struct MeasuredRun {
  std::vector<Reading> readings;
  std::vector<Reading> first_pass;  // over the sample, from its beginning
  std::vector<double> step_seconds;
  TableMemory memory;          // at the last reading
  bool shared_memory = false;  // carried the data between worker and pservers; otherwise gRPC did

  void Add(double at_s, JobCounters counters);
};

}  // namespace sluice::plan
