// Runs one job on a local cluster of its own for a few seconds, and reads what its daemons count.
//
// Thread safety: one thread, the main thread (LocalCluster). Call it after StopSignal::Install.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "cli/plan/measured_run.h"
#include "common/base/clock.h"
#include "proto/config.pb.h"

namespace sluice::plan {

// A cluster of one worker.
struct ShortCluster {
  Clock* clock = nullptr;  // required
  std::string device = "cpu";
  int server_threads = 2;
  std::string transport = "auto";  // as ParseTransportChoice takes it
  bool tls = false;
  std::function<void(const std::string&)> note = [](const std::string&) {};
};

// Trains `job` on `pservers` pservers for `seconds` after a warm-up, longer until it has made a few
// steps, and ends it. `folder` gets the logs, and the certificates with TLS. CANCELLED when a
// signal to stop is pending; otherwise the errors of the cluster and the job, and those of
// MetricsPage.
absl::StatusOr<MeasuredRun> RunShortJob(const JobConfig& job, int pservers, double seconds,
                                        const ShortCluster& cluster, const std::string& folder);

}  // namespace sluice::plan
