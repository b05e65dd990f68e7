#include "cli/hosts/own_host.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <sys/socket.h>

#include <cstring>
#include <vector>

namespace sluice::cli {
namespace {

struct OwnAddress {
  bool own = false, loopback = false;
};

bool IsLoopbackAddress(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto* const v4 = reinterpret_cast<const sockaddr_in*>(address);
    return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
  }
  const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(address);
  return address->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

bool SameAddress(const sockaddr* a, const sockaddr* b) {
  if (a->sa_family != b->sa_family) return false;
  if (a->sa_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(a)->sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in*>(b)->sin_addr.s_addr;
  }
  return a->sa_family == AF_INET6 &&
         std::memcmp(&reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr,
                     &reinterpret_cast<const sockaddr_in6*>(b)->sin6_addr, sizeof(in6_addr)) == 0;
}

std::vector<OwnAddress> AddressesOf(const std::string& host) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return {};
  // A try to bind would not do: with ip_nonlocal_bind, any address can be bound.
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) interfaces = nullptr;
  std::vector<OwnAddress> addresses;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    OwnAddress address;
    address.own = address.loopback = IsLoopbackAddress(at->ai_addr);
    for (const ifaddrs* one = interfaces; one != nullptr; one = one->ifa_next) {
      if (one->ifa_addr != nullptr && SameAddress(one->ifa_addr, at->ai_addr)) address.own = true;
    }
    addresses.push_back(address);
  }
  if (interfaces != nullptr) freeifaddrs(interfaces);
  freeaddrinfo(found);
  return addresses;
}

}  // namespace

bool IsOwnHost(const std::string& host) {
  for (const OwnAddress& address : AddressesOf(host)) {
    if (address.own) return true;
  }
  return false;
}

bool IsReachableHere(const std::string& host) {
  const std::vector<OwnAddress> addresses = AddressesOf(host);
  for (const OwnAddress& address : addresses) {
    if (!address.own || address.loopback) return false;
  }
  return !addresses.empty();
}

}  // namespace sluice::cli
