#include "python/core/cluster_sockets.h"

#include <dirent.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/config/address.h"

namespace sluice {
namespace {

// How names of the streams in shared memory begin (ShmStreamServer).
constexpr absl::string_view kStreamName("\0sluice-", 8);

}  // namespace

std::optional<ClusterSockets::Member> ClusterSockets::MemberAt(const sockaddr& address) {
  Member member;
  if (address.sa_family == AF_INET) {
    const auto& at = reinterpret_cast<const sockaddr_in&>(address);
    member.port = ntohs(at.sin_port);
    member.ip[10] = member.ip[11] = 0xFF;
    std::memcpy(&member.ip[12], &at.sin_addr, 4);
    return member;
  }
  if (address.sa_family != AF_INET6) return std::nullopt;
  const auto& at = reinterpret_cast<const sockaddr_in6&>(address);
  member.port = ntohs(at.sin6_port);
  std::memcpy(member.ip.data(), &at.sin6_addr, member.ip.size());
  return member;
}

void ClusterSockets::Note(const std::string& address) {
  const absl::StatusOr<Address> to = ParseAddress(address);
  if (!to.ok()) return;  // it cannot be connected to either
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(to->host.c_str(), absl::StrCat(to->port).c_str(), &hints, &found) != 0) return;
  absl::MutexLock lock(&mutex_);
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    const std::optional<Member> member = MemberAt(*at->ai_addr);
    const size_t noted = noted_.load(std::memory_order_relaxed);
    if (!member.has_value() || IsNoted(*member) || noted == members_.size()) continue;
    members_[noted] = *member;
    noted_.store(noted + 1, std::memory_order_release);
  }
  freeaddrinfo(found);
}

void ClusterSockets::NoteOnce(const std::string& address) {
  {
    absl::MutexLock lock(&mutex_);
    if (!called_.insert(address).second) return;
  }
  Note(address);
}

bool ClusterSockets::IsNoted(const Member& member) const {
  const auto end = members_.begin() + noted_.load(std::memory_order_acquire);
  return std::find(members_.begin(), end, member) != end;
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
  const std::optional<Member> member = MemberAt(reinterpret_cast<const sockaddr&>(peer));
  return member.has_value() && IsNoted(*member);
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
