#include "common/config/address.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"

namespace sluice {

absl::StatusOr<Address> ParseAddress(const std::string& text) {
  const auto refuse = [&text] {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is not an address; give host:port, e.g. 127.0.0.1:7100"));
  };
  // The last colon: IPv6 addresses have others, inside of their brackets.
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return refuse();
  Address address;
  address.host = text.substr(0, colon);
  const std::string digits = text.substr(colon + 1);
  uint32_t port;
  // SimpleAtoi would also take a sign and spaces.
  if (digits.find_first_not_of("0123456789") != std::string::npos ||
      !absl::SimpleAtoi(digits, &port) || port > 65535) {
    return refuse();
  }
  address.port = static_cast<uint16_t>(port);
  if (absl::StartsWith(address.host, "[") && absl::EndsWith(address.host, "]")) {
    address.host = address.host.substr(1, address.host.size() - 2);
  } else if (absl::StrContains(address.host, ':')) {
    return refuse();
  }
  if (address.host.empty() || address.host.find_first_of(" \t/[]") != std::string::npos) {
    return refuse();
  }
  return address;
}

std::string ToText(const Address& address) {
  if (absl::StrContains(address.host, ':')) {
    return absl::StrCat("[", address.host, "]:", address.port);
  }
  return absl::StrCat(address.host, ":", address.port);
}

bool IsLoopback(const std::string& host) {
  if (host == "localhost" || host == "::1") return true;
  // Digits and dots alone: "127.example.com" is a name, which may lead to any host.
  return absl::StartsWith(host, "127.") &&
         host.find_first_not_of("0123456789.") == std::string::npos;
}

absl::StatusOr<std::vector<Address>> ParseAddressList(const std::string& text) {
  std::vector<Address> addresses;
  const std::vector<std::string> parts = absl::StrSplit(text, ',');
  for (const std::string& part : parts) {
    SLUICE_ASSIGN_OR_RETURN(Address address, ParseAddress(part));
    if (address.port == 0 && parts.size() > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", part, "' in '", text,
                       "' has no port; give each of several schedulers "
                       "the port that it listens on"));
    }
    const std::string same = ToText(address);
    if (std::any_of(addresses.begin(), addresses.end(),
                    [&](const Address& other) { return ToText(other) == same; })) {
      return absl::InvalidArgumentError(absl::StrCat("'", text, "' names ", same,
                                                     " twice; every scheduler needs an address of "
                                                     "its own"));
    }
    addresses.push_back(std::move(address));
  }
  return addresses;
}

bool AllLoopback(const std::vector<Address>& addresses) {
  return std::all_of(addresses.begin(), addresses.end(),
                     [](const Address& address) { return IsLoopback(address.host); });
}

}  // namespace sluice
