// Where a pserver serves, and which one it is.
//
// Thread safety: plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace sluice {

struct PserverAddress {
  std::string address;  // host:port
  // With TLS, a server whose certificate names another rank is refused. Nothing: it may be any.
  std::optional<uint32_t> rank;

  PserverAddress() = default;
  // Text alone is the address of any pserver. NOLINTNEXTLINE(google-explicit-constructor)
  PserverAddress(std::string address) : address(std::move(address)) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  PserverAddress(const char* address) : address(address) {}
  PserverAddress(std::string address, std::optional<uint32_t> rank)
      : address(std::move(address)), rank(rank) {}

  bool operator==(const PserverAddress& other) const {
    return address == other.address && rank == other.rank;
  }
  bool operator<(const PserverAddress& other) const {
    return std::pair(address, rank) < std::pair(other.address, other.rank);
  }
};

}  // namespace sluice
