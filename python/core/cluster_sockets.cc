#include "python/core/cluster_sockets.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "common/config/address.h"

namespace sluice {
namespace {

// How names of the streams in shared memory begin (ShmStreamServer).
constexpr absl::string_view kStreamName("\0sluice-", 8);

// The port, and above it the IPv4 address; 0 for any other one.
uint64_t Member(uint16_t port, in_addr ip) { return uint64_t{ntohl(ip.s_addr)} << 16 | port; }

}  // namespace

void ClusterSockets::Note(const std::string& address) {
  const absl::StatusOr<Address> to = ParseAddress(address);
  if (!to.ok()) return;  // it cannot be connected to either
  in_addr ip = {};
  if (inet_pton(AF_INET, to->host.c_str(), &ip) != 1) ip = {};
  const uint64_t member = Member(to->port, ip);
  for (std::atomic<uint64_t>& place : members_) {
    uint64_t there = 0;
    if (place.compare_exchange_strong(there, member, std::memory_order_relaxed) || there == member)
      return;
  }
}

bool ClusterSockets::IsNoted(uint64_t member) const {
  for (const std::atomic<uint64_t>& place : members_) {
    const uint64_t there = place.load(std::memory_order_relaxed);
    if (there == 0) return false;
    // A name was noted with its port alone.
    if (there == member || there == (member & 0xFFFF)) return true;
  }
  return false;
}

bool ClusterSockets::IsOfCluster(int fd) const {
  sockaddr_storage peer = {};
  socklen_t size = sizeof(peer);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return false;
  if (peer.ss_family == AF_UNIX) {
    const auto* const to = reinterpret_cast<const sockaddr_un*>(&peer);
    return size > offsetof(sockaddr_un, sun_path) &&
           absl::StartsWith({to->sun_path, size - offsetof(sockaddr_un, sun_path)}, kStreamName);
  }
  if (peer.ss_family == AF_INET) {
    const auto* const to = reinterpret_cast<const sockaddr_in*>(&peer);
    return IsNoted(Member(ntohs(to->sin_port), to->sin_addr));
  }
  if (peer.ss_family != AF_INET6) return false;
  const auto* const to = reinterpret_cast<const sockaddr_in6*>(&peer);
  in_addr ip = {};
  if (IN6_IS_ADDR_V4MAPPED(&to->sin6_addr))
    std::memcpy(&ip, to->sin6_addr.s6_addr + 12, sizeof(ip));
  return IsNoted(Member(ntohs(to->sin6_port), ip));
}

void ClusterSockets::CloseInForkedChild() const {
  std::vector<int> own;
  DIR* const folder = opendir("/proc/self/fd");
  if (folder == nullptr) return;
  while (const dirent* const entry = readdir(folder)) {
    int fd = -1;
    if (absl::SimpleAtoi(entry->d_name, &fd) && IsOfCluster(fd)) own.push_back(fd);
  }
  closedir(folder);
  for (const int fd : own) close(fd);
}

}  // namespace sluice
