// Which hosts a launch uses, and which daemons run on which of them.
//
// Thread safety: pure functions on plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice::cli {

constexpr uint32_t kMostHosts = 200;
constexpr uint32_t kMostWorkersOfHost = 1000;

struct HostSpec {
  std::string user;  // empty: ssh chooses
  // The name of the list, without the brackets of IPv6. Daemons of the host advertise it.
  std::string name;
  uint32_t workers = 1;

  bool operator==(const HostSpec& other) const {
    return user == other.user && name == other.name && workers == other.workers;
  }
};

// Parses "[user@]host[:workers],...", such as "a:4,me@b,[::1]:2". INVALID_ARGUMENT names `origin`
// ("--hosts"), the entry and the fix, also when a host occurs twice.
absl::StatusOr<std::vector<HostSpec>> ParseHostList(absl::string_view text,
                                                    const std::string& origin);
// The same for a file: an entry a line, "host:4" or, as in a host file of MPI, "host slots=4". Text
// behind # is a comment.
absl::StatusOr<std::vector<HostSpec>> ParseHostFile(absl::string_view text,
                                                    const std::string& origin);

uint32_t WorkersOf(const std::vector<HostSpec>& hosts);

// The ports that daemons may listen at.
struct PortRange {
  uint32_t from = 0, to = 0;  // 0: any free port
};
// Parses "FROM-TO". INVALID_ARGUMENT: not 1 to 65535, or fewer than `needed` ports.
absl::StatusOr<PortRange> ParsePorts(const std::string& text, uint32_t needed);

// Indices into the list of hosts.
struct Placement {
  size_t scheduler = 0;
  std::vector<size_t> pservers, workers;  // by rank

  // The number of workers on the host.
  uint32_t WorkersOn(size_t host) const;
};

// Places workers by the counts of the hosts, in order, and pservers on the hosts in turn.
Placement PlaceDaemons(const std::vector<HostSpec>& hosts, uint32_t server_num, size_t scheduler);

// The host of a daemon that has lost its own: the one that is left with the fewest daemons, and of
// several the first. `daemons`: how many each host has; a negative number for a host that is gone.
// Returns -1 when none is left.
int HostForLost(const std::vector<int>& daemons);

}  // namespace sluice::cli
