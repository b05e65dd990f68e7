// Reading, defaults and checks of the cluster file.
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/local_path.h"
#include "common/base/status_macros.h"
#include "common/config/address.h"
#include "common/config/device_request.h"
#include "common/config/job_config.h"
#include "common/config/textproto_file.h"
#include "common/config/transport_choice.h"

namespace sluice {
namespace {

// Collects what is wrong with a cluster file.
class Problems {
 public:
  template <typename... Parts>
  void Add(const Parts&... parts) {
    lines_.push_back(absl::StrCat(parts...));
  }
  void CheckRange(const char* field, uint64_t value, uint64_t low, uint64_t high) {
    if (value < low || value > high)
      Add(field, ": ", value, " is out of range; give ", low, " to ", high);
  }
  void CheckEntry(const std::string& field, const std::string& text,
                  const absl::StatusOr<std::vector<Address>>& addresses, bool anywhere) {
    if (!addresses.ok()) {
      Add(field, ": ", addresses.status().message());
    } else if (!anywhere && !AllLoopback(*addresses)) {
      Add(field, ": '", text,
          "' is not a loopback address and there is no TLS; set security { tls_cert, tls_key, "
          "tls_ca }, "
          "or, if you trust the network, security { insecure: true }");
    }
  }
  absl::Status status() const {
    return lines_.empty() ? absl::OkStatus()
                          : absl::InvalidArgumentError(absl::StrJoin(lines_, "\n"));
  }

 private:
  std::vector<std::string> lines_;
};

absl::StatusOr<std::vector<Address>> AsList(const absl::StatusOr<Address>& address) {
  if (!address.ok()) return address.status();
  return std::vector<Address>{*address};
}

void CheckAddresses(const ClusterConfig& cluster, Problems* problems) {
  const SecurityConfig& security = cluster.security();
  // tls_ca alone is enough here: certificate and key are those of each process, and may come from
  // its flags.
  const bool anywhere = security.insecure() || !security.tls_ca().empty();
  std::set<std::string> seen;  // without those that ask for any free port
  if (!cluster.scheduler().empty()) {
    const auto schedulers = ParseAddressList(cluster.scheduler());
    problems->CheckEntry("scheduler", cluster.scheduler(), schedulers, anywhere);
    if (schedulers.ok()) {
      for (const Address& address : *schedulers) {
        if (address.port != 0) seen.insert(ToText(address));
      }
    }
  }
  for (int i = 0; i < cluster.pservers_size(); ++i) {
    const std::string field = absl::StrCat("pservers[", i, "]");
    const std::string& address = cluster.pservers(i);
    const auto parsed = ParseAddress(address);
    problems->CheckEntry(field, address, AsList(parsed), anywhere);
    // Port 0 asks for any free port, so several members may give it.
    const bool any_port = parsed.ok() && parsed->port == 0;
    // An address that cannot be parsed is compared as text.
    if (!any_port && !seen.insert(parsed.ok() ? ToText(*parsed) : address).second) {
      problems->Add(field, ": '", address, "' is given twice; every process needs its own address");
    }
  }
}

void CheckWorkers(const ClusterConfig& cluster, Problems* problems) {
  for (int i = 0; i < cluster.worker_devices_size(); ++i) {
    const absl::Status device = ParseDeviceRequest(cluster.worker_devices(i)).status();
    if (!device.ok()) problems->Add("worker_devices[", i, "]: ", device.message());
  }
  // Fewer are fine: the other workers use the default device.
  if (cluster.worker_devices_size() > cluster.worker_num()) {
    problems->Add("worker_devices: ", cluster.worker_devices_size(), " devices for ",
                  cluster.worker_num(), " worker slots; raise worker_num, or remove some");
  }
  problems->CheckRange("worker_num", cluster.worker_num(), 0, 65536);
  if (!cluster.transport().empty()) {
    const absl::Status transport = ParseTransportChoice(cluster.transport()).status();
    if (!transport.ok()) problems->Add("transport: ", transport.message());
  }
}

void CheckLimits(const LimitsConfig& limits, Problems* problems) {
  problems->CheckRange("limits.heartbeat_ms", limits.heartbeat_ms(), 10, 60'000);
  problems->CheckRange("limits.lease_ms", limits.lease_ms(), 100, 3'600'000);
  if (limits.heartbeat_ms() > limits.lease_ms() / 2) {
    problems->Add("limits.heartbeat_ms: ", limits.heartbeat_ms(), " is more than half of lease_ms ",
                  limits.lease_ms(), ", so one late report could end a member; give at most ",
                  limits.lease_ms() / 2, " (sluice-scheduler has --heartbeat_ms)");
  }
  problems->CheckRange("limits.wait_s", limits.wait_s(), 1, 86'400);
  problems->CheckRange("limits.max_message_mib", limits.max_message_mib(), 5, 2'000);
  problems->CheckRange("limits.max_streams", limits.max_streams(), 1, 1'000'000);
  if (limits.has_max_queued_mib())
    problems->CheckRange("limits.max_queued_mib", limits.max_queued_mib(), 64, 1 << 24);
}

void CheckRoots(const SecurityConfig& security, Problems* problems) {
  const auto check = [&](const char* field, const auto& roots) {
    for (int i = 0; i < roots.size(); ++i) {
      // Jobs may also read and write below a URL (common/places).
      const bool of_data = &roots == &security.data_root();
      if (HasScheme(roots[i])) {
        const std::string why = of_data ? DataUrlProblem(roots[i]) : OutputUrlProblem(roots[i]);
        if (!why.empty()) problems->Add(field, "[", i, "]: '", roots[i], "' ", why);
        continue;
      }
      // A relative path would depend on the folder in which each daemon was started.
      if (roots[i].empty() || roots[i][0] != '/') {
        problems->Add(field, "[", i, "]: '", roots[i],
                      "' does not begin with /; give the absolute path of a folder");
      }
    }
  };
  check("security.data_root", security.data_root());
  check("security.output_root", security.output_root());
  if (!security.data_root().empty() && security.output_root().empty()) {
    problems->Add(
        "security.data_root: without an output_root, jobs could write anywhere; also give "
        "--output_root (SLUICE_OUTPUT_ROOT, or security { output_root })");
  }
}

}  // namespace

absl::StatusOr<ClusterConfig> ReadClusterConfig(const std::string& file) {
  ClusterConfig cluster;
  SLUICE_RETURN_IF_ERROR(ReadTextprotoFile(file, &cluster, nullptr));
  return cluster;
}

ClusterConfig WithDefaults(ClusterConfig cluster) {
  if (cluster.version() == 0) cluster.set_version(1);
  if (cluster.name().empty()) cluster.set_name("sluice");
  LimitsConfig* limits = cluster.mutable_limits();
  if (!limits->has_lease_ms()) limits->set_lease_ms(10'000);
  if (!limits->has_heartbeat_ms()) limits->set_heartbeat_ms(1'000);
  if (!limits->has_wait_s()) limits->set_wait_s(120);
  if (!limits->has_max_message_mib()) limits->set_max_message_mib(64);
  if (!limits->has_max_streams()) {
    // One of each worker and of the pserver before, and as many that end.
    limits->set_max_streams(std::max(
        1024u, 2 * (cluster.worker_num() + static_cast<uint32_t>(cluster.pservers_size()))));
  }
  return cluster;
}

absl::Status ValidateClusterConfig(const ClusterConfig& cluster) {
  Problems problems;
  if (cluster.version() > 1) {
    problems.Add("version: ", cluster.version(),
                 " is newer than this build knows; give 1, or use a newer sluice");
  }
  CheckAddresses(cluster, &problems);
  CheckWorkers(cluster, &problems);
  CheckLimits(cluster.limits(), &problems);
  CheckRoots(cluster.security(), &problems);
  return problems.status();
}

}  // namespace sluice
