// The flags of `sluice launch` that name other hosts, and the cluster that they ask for.
//
// Thread safety: free functions.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/hosts/host_cluster.h"
#include "cli/screen/command_line.h"
#include "proto/config.pb.h"

namespace sluice::cli {

// --hosts, -H, --ips, --hosts_file and the flags that only they give a meaning.
std::vector<FlagSpec> HostFlags();

// Whether the command names hosts.
bool NamesHosts(const ParsedCommand& command);

// A launch on hosts as the flags describe it, before any host was asked.
struct HostsPlan {
  std::vector<HostSpec> hosts;
  Placement placement;
  PortRange ports;
  bool tls = true;

  uint32_t worker_num() const { return static_cast<uint32_t>(placement.workers.size()); }
};
// INVALID_ARGUMENT names the flag and the fix: an entry, another --worker_num than the sum, or a
// flag that other hosts cannot follow.
absl::StatusOr<HostsPlan> HostsPlanOf(const ParsedCommand& command);

// "hosts: a (scheduler, 4 workers), b (4 workers); mutual TLS".
std::string DescribeHosts(const HostsPlan& plan);

// Checks the hosts and starts the cluster. `program`: of the user, whose `folder` this makes; null:
// workers are sluice-worker. `limits`: with the lease of the flags. Statuses as HostCluster::Start.
absl::StatusOr<std::unique_ptr<HostCluster>> StartOnHosts(
    const ParsedCommand& command, const HostsPlan& plan, const JobConfig& job,
    const WorkerProgram* program, const LimitsConfig& limits, LogFolder logs,
    const std::function<void(const std::string&)>& note);

}  // namespace sluice::cli
