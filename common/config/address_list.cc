#include "common/config/address_list.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"

namespace sluice {

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
