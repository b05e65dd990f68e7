#include "common/security/local_sockets.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

constexpr char kMapped[] = "\0\0\0\0\0\0\0\0\0\0\xff\xff";  // before IPv4 addresses in IPv6
constexpr size_t kMappedBytes = 12;
// Also finds sockets that are bound to the loopback device. It has this index in every namespace.
constexpr uint32_t kLoopbackDevice = 1;

// Set once the kernel has answered. Relaxed: nothing else depends on it.
std::atomic<bool> kernel_answers{false};

absl::Status NoSocket() { return absl::NotFoundError("the kernel knows no such socket"); }

// The error for a file or socket that could not be opened; errno says why.
absl::Status CannotAsk() {
  if (errno != EMFILE && errno != ENFILE) return NoSocket();
  return absl::UnavailableError(
      "no file descriptor is left with which to find out which user has a connection; try again");
}

struct Question {
  nlmsghdr header;
  inet_diag_req_v2 request;
};

Question Ask(const TcpEnd& from, const TcpEnd& to) {
  Question question = {};
  question.header.nlmsg_len = sizeof(question);
  question.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  question.header.nlmsg_flags = NLM_F_REQUEST;
  question.request.sdiag_family = from.address.size() == 4 ? AF_INET : AF_INET6;
  question.request.sdiag_protocol = IPPROTO_TCP;
  // In any state: the callers decide what each state means.
  question.request.idiag_states = ~0u;
  inet_diag_sockid& id = question.request.id;
  id.idiag_sport = htons(from.port);
  id.idiag_dport = htons(to.port);
  std::memcpy(id.idiag_src, from.address.data(), from.address.size());
  std::memcpy(id.idiag_dst, to.address.data(), to.address.size());
  id.idiag_if = kLoopbackDevice;
  id.idiag_cookie[0] = id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  return question;
}

// The socket at `from` that is connected to `to`. When there is none, a listener at `from`.
absl::StatusOr<LocalSocket> AskKernel(const TcpEnd& from, const TcpEnd& to) {
  const int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
  if (fd < 0) return CannotAsk();
  const Question question = Ask(from, to);
  absl::StatusOr<LocalSocket> found = NoSocket();
  if (send(fd, &question, sizeof(question), 0) == sizeof(question)) {
    alignas(nlmsghdr) char answer[1024];
    // The kernel has answered when send returns, so this does not wait.
    const ssize_t size = recv(fd, answer, sizeof(answer), 0);
    const auto* const header = reinterpret_cast<const nlmsghdr*>(answer);
    if (size >= static_cast<ssize_t>(NLMSG_LENGTH(sizeof(inet_diag_msg))) &&
        header->nlmsg_type == SOCK_DIAG_BY_FAMILY) {
      inet_diag_msg socket;
      std::memcpy(&socket, NLMSG_DATA(header), sizeof(socket));
      const uint32_t* const cookie = socket.id.idiag_cookie;
      kernel_answers.store(true, std::memory_order_relaxed);
      found = LocalSocket{socket.idiag_state, socket.idiag_uid, socket.idiag_inode,
                          uint64_t{cookie[1]} << 32 | cookie[0]};
    }
  }
  close(fd);
  return found;
}

// An end as the tables write it: groups of 4 bytes in the host's order, in hexadecimal.
std::string TableText(const std::string& address, uint16_t port) {
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

std::string Mapped(const std::string& address) {
  return address.size() == 4 ? std::string(kMapped, kMappedBytes) + address : address;
}

struct TableRow {
  std::string from, to;
  LocalSocket socket;
};

// Calls `use` with each row of /proc/net/tcp and tcp6.
template <class Use>
absl::Status ReadTables(const Use& use) {
  for (const char* path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    errno = 0;
    std::ifstream table(path);
    // Another error, such as a host without IPv6, means an empty table.
    if (!table && (errno == EMFILE || errno == ENFILE)) return CannotAsk();
    std::string line;
    while (std::getline(table, line)) {
      std::istringstream fields(line);
      TableRow row;
      std::string skipped;
      // sl, ends, state, queues, timer, retransmits, uid, timeout, inode
      if (fields >> skipped >> row.from >> row.to >> std::hex >> row.socket.state >> skipped >>
          skipped >> skipped >> std::dec >> row.socket.user >> skipped >> row.socket.inode)
        use(row);
    }
  }
  return absl::OkStatus();
}

}  // namespace

LocalSockets::Source LocalSockets::KnownSource() {
  return kernel_answers.load(std::memory_order_relaxed) ? Source::kSocketDiagnostics
                                                        : Source::kProcTables;
}

std::optional<TcpEnd> TcpEnd::Of(const sockaddr* address, socklen_t size) {
  TcpEnd end;
  if (address->sa_family == AF_INET && size >= sizeof(sockaddr_in)) {
    sockaddr_in ip;
    std::memcpy(&ip, address, sizeof(ip));
    end.address.assign(reinterpret_cast<const char*>(&ip.sin_addr), 4);
    end.port = ntohs(ip.sin_port);
  } else if (address->sa_family == AF_INET6 && size >= sizeof(sockaddr_in6)) {
    sockaddr_in6 ip;
    std::memcpy(&ip, address, sizeof(ip));
    end.address.assign(reinterpret_cast<const char*>(&ip.sin6_addr), 16);
    if (absl::StartsWith(end.address, absl::string_view(kMapped, kMappedBytes)))
      end.address.erase(0, kMappedBytes);
    end.port = ntohs(ip.sin6_port);
  } else {
    return std::nullopt;
  }
  return end;
}

bool TcpEnd::is_loopback() const {
  if (address.size() == 4) return address[0] == 127;
  return std::memcmp(address.data(), &in6addr_loopback, sizeof(in6addr_loopback)) == 0;
}

std::string TcpEnd::ToText() const {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(address.size() == 4 ? AF_INET : AF_INET6, address.data(), text, sizeof(text));
  return address.size() == 4 ? absl::StrCat(text, ":", port) : absl::StrCat("[", text, "]:", port);
}

absl::StatusOr<LocalSocket> LocalSockets::Connection(const TcpEnd& from, const TcpEnd& to) const {
  absl::StatusOr<LocalSocket> found = NoSocket();
  if (source_ == Source::kSocketDiagnostics) {
    found = AskKernel(from, to);
    // The kernel falls back to a listener at the same port.
    if (found.ok() && found->state == TCP_LISTEN) found = NoSocket();
    return found;
  }
  const auto is = [](const std::string& text, const TcpEnd& end) {
    return text == TableText(end.address, end.port) ||
           text == TableText(Mapped(end.address), end.port);
  };
  const absl::Status read = ReadTables([&](const TableRow& row) {
    if (is(row.from, from) && is(row.to, to)) found = row.socket;
  });
  if (!read.ok()) return read;
  return found;
}

absl::StatusOr<std::vector<LocalSocket>> LocalSockets::Listeners(const TcpEnd& at) const {
  std::vector<LocalSocket> listeners;
  if (source_ == Source::kSocketDiagnostics) {
    const auto found = AskKernel(at, TcpEnd{std::string(at.address.size(), '\0'), 0});
    if (!found.ok()) return found.status();
    if (found->state == TCP_LISTEN) listeners.push_back(*found);
  } else {
    const std::string any(16, '\0');
    const std::string places[] = {TableText(at.address, at.port),
                                  TableText(Mapped(at.address), at.port),
                                  TableText(any.substr(0, 4), at.port), TableText(any, at.port)};
    const absl::Status read = ReadTables([&](const TableRow& row) {
      if (row.socket.state == TCP_LISTEN &&
          std::find(std::begin(places), std::end(places), row.from) != std::end(places))
        listeners.push_back(row.socket);
    });
    if (!read.ok()) return read;
  }
  if (listeners.empty()) return NoSocket();
  return listeners;
}

}  // namespace sluice
