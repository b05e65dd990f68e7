#include "worker/service/job_collective.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/collective/make_collective.h"
#include "common/config/address.h"
#include "common/shared_memory/file_descriptor.h"
#include "worker/context/job_context.h"

namespace sluice {
namespace {

const char* NameOf(SyncConfigs::Engine engine) {
  switch (engine) {
    case SyncConfigs::SHM:
      return "shm";
    case SyncConfigs::GLOO:
      return "gloo";
    case SyncConfigs::TWO_LEVEL:
      return "two_level";
    case SyncConfigs::NCCL:
      return "nccl";
    default:
      return "auto";
  }
}

}  // namespace

std::string AddressTowards(const std::string& peer) {
  const absl::StatusOr<Address> address = ParseAddress(peer);
  if (!address.ok()) return "";
  addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const std::string port = absl::StrCat(address->port);
  if (getaddrinfo(address->host.c_str(), port.c_str(), &hints, &found) != 0) return "";
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    // Connecting a datagram socket sends nothing: it only asks the kernel for a route.
    const FileDescriptor fd(socket(one->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage own = {};
    socklen_t length = sizeof(own);
    char text[NI_MAXHOST];
    if (fd && connect(fd.get(), one->ai_addr, one->ai_addrlen) == 0 &&
        getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &length) == 0 &&
        getnameinfo(reinterpret_cast<const sockaddr*>(&own), length, text, sizeof(text), nullptr, 0,
                    NI_NUMERICHOST) == 0) {
      return text;
    }
  }
  return "";
}

std::string AddressTowardsAny(const std::string& peers) {
  // The name of one may not resolve here. One route is enough.
  for (const absl::string_view peer : absl::StrSplit(peers, ',')) {
    std::string address = AddressTowards(std::string(peer));
    if (!address.empty()) return address;
  }
  return "";
}

absl::StatusOr<std::unique_ptr<Collective>> MakeJobCollective(const JobConfig& config,
                                                              const Identity& identity,
                                                              const ComputeDevice& device) {
  // The ranks of a job that only evaluates exchange nothing, so any engine will do.
  if (config.evaluate_only()) return MakeCollective("shm", CollectiveOptions());
  const SyncConfigs::Engine engine = config.strategy().sync_configs().engine();
  // The engines between hosts do not encrypt. A cluster with TLS must say that its network may be
  // trusted.
  const bool plain_allowed =
      !identity.credentials.tls() || identity.cluster.security().plain_collective();
  const std::string how_to_allow =
      "this cluster uses TLS, and gradients between hosts are sent without encryption; "
      "set security { plain_collective: true } in the cluster file of every worker if its network "
      "may be trusted, or keep the dense tables on the pservers (sync_configs.dense: PSERVER and "
      "no "
      "update_at: COLLECTIVE)";
  if (!plain_allowed && (engine == SyncConfigs::GLOO || engine == SyncConfigs::TWO_LEVEL)) {
    return absl::PermissionDeniedError(absl::StrCat("strategy.sync_configs.engine ",
                                                    SyncConfigs::Engine_Name(engine),
                                                    " is not allowed: ", how_to_allow));
  }
  if (engine == SyncConfigs::NCCL && device.kind != ComputeDevice::kCuda) {
    return absl::FailedPreconditionError(
        "strategy.sync_configs.engine NCCL exchanges gradients between GPUs, and this worker "
        "computes on the CPU; start all workers of the job with --device=cuda (sluice launch: "
        "--gpus), or choose engine AUTO");
  }
  CollectiveOptions options;
  if (device.kind == ComputeDevice::kCuda) options.cuda_device = device.ordinal;
  // Nobody waits for longer, whatever the job allows.
  options.timeout = std::min(StepPatience(config), kMaxCollectiveTimeout);
  options.timeout_options = StepPatienceOptions(config);
  options.network_timeout = absl::Seconds(config.train().step_timeout_s());
  options.comm_num = std::max(1u, config.strategy().sync_configs().comm_num());
  if (plain_allowed) {
    // The interface that leads to the scheduler also leads to the other workers, which is not
    // certain for any other interface.
    options.bind_address = AddressTowardsAny(identity.scheduler);
    options.why_no_address = absl::StrCat(
        "this host has no route to a scheduler (", identity.scheduler,
        "), and takes its address for the exchange of gradients from that route; give --scheduler, "
        "or `scheduler` of the cluster file, a name that resolves here or an address");
  } else {
    // Inside one host, AUTO and NCCL need no address.
    options.why_no_address = how_to_allow;
  }
  return MakeCollective(NameOf(engine), options);
}

}  // namespace sluice
