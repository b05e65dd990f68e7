#include "common/security/peer_host.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstring>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

constexpr size_t kNetworkBytes = 8;

bool IsLoopback(const std::string& ip) {
  return std::memcmp(ip.data(), &in6addr_loopback, sizeof(in6addr_loopback)) == 0;
}

}  // namespace

std::string HostOfIp(const std::string& ip) {
  if (ip.size() != sizeof(in6_addr) || IsLoopback(ip)) return ip;
  return ip.substr(0, kNetworkBytes);
}

std::string HostOfAddress(absl::string_view address) {
  std::string host(address.substr(0, address.rfind(':')));
  if (host.size() < 2 || host.front() != '[' || host.back() != ']') return host;
  host = host.substr(1, host.size() - 2);
  in6_addr ip;
  // A scope ("%eth0") names a link of this host, and not another host.
  if (inet_pton(AF_INET6, host.substr(0, host.find('%')).c_str(), &ip) != 1) return host;
  char text[INET6_ADDRSTRLEN] = "";
  if (IN6_IS_ADDR_V4MAPPED(&ip)) {
    inet_ntop(AF_INET, ip.s6_addr + sizeof(ip) - sizeof(in_addr), text, sizeof(text));
    return text;
  }
  const bool whole_network =
      HostOfIp(std::string(reinterpret_cast<const char*>(&ip), sizeof(ip))).size() == kNetworkBytes;
  if (whole_network) std::memset(ip.s6_addr + kNetworkBytes, 0, sizeof(ip) - kNetworkBytes);
  inet_ntop(AF_INET6, &ip, text, sizeof(text));
  return absl::StrCat(text, whole_network ? "/64" : "");
}

}  // namespace sluice
