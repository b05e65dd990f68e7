#include "common/security/local_peers.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

// The addresses of a host name; none when it has no address.
std::vector<std::pair<int, std::string>> AddressesOf(const std::string& host) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  std::vector<std::pair<int, std::string>> addresses;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return addresses;
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    if (info->ai_family == AF_INET) {
      const auto* ip = reinterpret_cast<const sockaddr_in*>(info->ai_addr);
      addresses.emplace_back(AF_INET, std::string(reinterpret_cast<const char*>(&ip->sin_addr), 4));
    } else if (info->ai_family == AF_INET6) {
      const auto* ip = reinterpret_cast<const sockaddr_in6*>(info->ai_addr);
      addresses.emplace_back(AF_INET6,
                             std::string(reinterpret_cast<const char*>(&ip->sin6_addr), 16));
    }
  }
  freeaddrinfo(found);
  return addresses;
}

// One question to the kernel and its answer.
struct Question {
  nlmsghdr header;
  inet_diag_req_v2 request;
};

// The socket at `from` that is connected to `to`, or the listener at `from`. Nothing: there is
// none, or the kernel has no socket diagnostics (its module tcp_diag).
std::optional<inet_diag_msg> AskKernel(int family, const std::string& from, int from_port,
                                       const std::string& to, int to_port) {
  const int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
  if (fd < 0) return std::nullopt;
  Question question = {};
  question.header.nlmsg_len = sizeof(question);
  question.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  question.header.nlmsg_flags = NLM_F_REQUEST;
  question.request.sdiag_family = static_cast<uint8_t>(family);
  question.request.sdiag_protocol = IPPROTO_TCP;
  question.request.idiag_states = ~0u;
  inet_diag_sockid& id = question.request.id;
  id.idiag_sport = htons(static_cast<uint16_t>(from_port));
  id.idiag_dport = htons(static_cast<uint16_t>(to_port));
  std::memcpy(id.idiag_src, from.data(), from.size());
  std::memcpy(id.idiag_dst, to.data(), to.size());
  id.idiag_cookie[0] = id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  std::optional<inet_diag_msg> found;
  if (send(fd, &question, sizeof(question), 0) == sizeof(question)) {
    alignas(nlmsghdr) char answer[1024];
    const ssize_t size = recv(fd, answer, sizeof(answer), 0);
    const auto* const header = reinterpret_cast<const nlmsghdr*>(answer);
    if (size >= static_cast<ssize_t>(NLMSG_LENGTH(sizeof(inet_diag_msg))) &&
        header->nlmsg_type == SOCK_DIAG_BY_FAMILY) {
      found.emplace();
      std::memcpy(&*found, NLMSG_DATA(header), sizeof(*found));
    }
  }
  close(fd);
  return found;
}

std::optional<uid_t> OwnerByDiagnostics(int family, const std::string& from, int from_port,
                                        const std::string& to, int to_port) {
  const auto socket = AskKernel(family, from, from_port, to, to_port);
  // Sockets that are closing have no owner any more.
  if (!socket.has_value() || socket->idiag_state != TCP_ESTABLISHED) return std::nullopt;
  return socket->idiag_uid;
}

// An address as /proc/net/tcp writes it: groups of 4 bytes in the host's order, in hexadecimal.
std::string ProcAddress(const std::string& address, int port) {
  std::ostringstream text;
  text << std::hex << std::uppercase;
  text.fill('0');
  for (size_t i = 0; i < address.size(); i += 4) {
    uint32_t group;
    std::memcpy(&group, address.data() + i, sizeof(group));
    text.width(8);
    text << group;
  }
  text << ':';
  text.width(4);
  text << port;
  return text.str();
}

std::optional<uid_t> OwnerByTable(int family, const std::string& from, int from_port,
                                  const std::string& to, int to_port) {
  const std::string local = ProcAddress(from, from_port), remote = ProcAddress(to, to_port);
  std::ifstream table(family == AF_INET ? "/proc/net/tcp" : "/proc/net/tcp6");
  std::string line;
  while (std::getline(table, line)) {
    std::istringstream fields(line);
    std::string slot, at_local, at_remote, state, queues, timer, retransmits;
    uid_t owner = 0;
    if (!(fields >> slot >> at_local >> at_remote >> state >> queues >> timer >> retransmits >>
          owner))
      continue;
    if (at_local == local && at_remote == remote && state == "01") return owner;
  }
  return std::nullopt;
}

}  // namespace

LocalPeers::LocalPeers(const std::string& host, int port, uid_t user) : user_(user) {
  for (auto& [family, address] : AddressesOf(host)) local_.push_back({family, address, port});
  // A kernel with socket diagnostics knows the listener.
  for (const Endpoint& local : local_) {
    const std::string any(local.address.size(), '\0');
    const auto listener = AskKernel(local.family, local.address, port, any, 0);
    if (listener.has_value() && listener->idiag_state == TCP_LISTEN)
      source_ = Source::kSocketDiagnostics;
  }
}

absl::StatusOr<LocalPeers::Endpoint> LocalPeers::Parse(const std::string& peer) {
  std::string text = absl::StrReplaceAll(peer, {{"%5B", "["}, {"%5D", "]"}});
  const size_t colon = text.rfind(':');
  Endpoint endpoint;
  bool fine =
      colon != std::string::npos && absl::SimpleAtoi(text.substr(colon + 1), &endpoint.port);
  absl::string_view host(text.data(), fine ? colon : 0);
  if (absl::ConsumePrefix(&host, "ipv4:")) {
    endpoint.family = AF_INET;
    endpoint.address.resize(4);
  } else if (absl::ConsumePrefix(&host, "ipv6:[") && absl::ConsumeSuffix(&host, "]")) {
    endpoint.family = AF_INET6;
    endpoint.address.resize(16);
  } else {
    fine = false;
  }
  if (fine && inet_pton(endpoint.family, std::string(host).c_str(), endpoint.address.data()) == 1)
    return endpoint;
  return absl::InvalidArgumentError(
      absl::StrCat("the address of the caller, ", Printable(peer), ", is not one of TCP"));
}

absl::StatusOr<uid_t> LocalPeers::OwnerOf(const std::string& peer, Source source) const {
  SLUICE_ASSIGN_OR_RETURN(const Endpoint from, Parse(peer));
  const auto ask = source == Source::kProcTable ? &OwnerByTable : &OwnerByDiagnostics;
  bool no_descriptor = false;
  for (const Endpoint& to : local_) {
    if (to.family != from.family) continue;
    errno = 0;
    const auto owner = ask(from.family, from.address, from.port, to.address, to.port);
    if (owner.has_value()) return *owner;
    no_descriptor = no_descriptor || errno == EMFILE || errno == ENFILE;
  }
  if (no_descriptor) {
    return absl::UnavailableError(
        "no file descriptor is left with which to find out which user has called; try again");
  }
  return absl::NotFoundError(absl::StrCat("no open connection from ", Printable(peer)));
}

absl::Status LocalPeers::Check(const std::string& peer) const {
  const absl::StatusOr<uid_t> owner = OwnerOf(peer, source_);
  if (owner.ok() && (*owner == user_ || *owner == 0)) return absl::OkStatus();
  // A denied member exits, but this shortage is temporary, so the caller may retry.
  if (absl::IsUnavailable(owner.status())) return owner.status();
  constexpr absl::string_view kFix =
      "; run both as one user, use TLS (--tls), or serve all users of the host with "
      "--any_local_user";
  if (!owner.ok()) {
    return absl::PermissionDeniedError(absl::StrCat(
        "it is not known which user of this host has called: ", owner.status().message(), kFix));
  }
  return absl::PermissionDeniedError(absl::StrCat("the caller is user ", *owner,
                                                  ", and without TLS this daemon serves only user ",
                                                  user_, " and root", kFix));
}

}  // namespace sluice
