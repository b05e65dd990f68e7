#include "worker/job_collective.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/collective/make_collective.h"
#include "common/config/address.h"
#include "common/shared_memory/file_descriptor.h"

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

absl::StatusOr<std::unique_ptr<Collective>> MakeJobCollective(const JobConfig& config,
                                                              const Identity& identity) {
  const SyncConfigs::Engine engine = config.strategy().sync_configs().engine();
  const bool plain_allowed =
      !identity.credentials.tls() || identity.cluster.security().plain_collective();
  if (!plain_allowed && (engine == SyncConfigs::GLOO || engine == SyncConfigs::TWO_LEVEL)) {
    return absl::PermissionDeniedError(absl::StrCat(
        "strategy.sync_configs.engine ", SyncConfigs::Engine_Name(engine),
        " sends gradients between hosts without encryption, and this cluster uses TLS; set "
        "security "
        "{ plain_collective: true } in the cluster file of every worker if its network may be "
        "trusted, or set sync_configs.dense: PSERVER"));
  }
  CollectiveOptions options;
  options.timeout = absl::Seconds(config.train().step_timeout_s());
  if (plain_allowed) {
    const std::vector<std::string> schedulers = absl::StrSplit(identity.scheduler, ',');
    options.bind_address = AddressTowards(schedulers.front());
  }
  return MakeCollective(NameOf(engine), options);
}

}  // namespace sluice
