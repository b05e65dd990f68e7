// Reads an address and a list of addresses.
//
// Checks: what is accepted has a text that means the same.
#include "common/config/address.h"

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;  // NOLINT
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto address = ParseAddress(text);
  if (address.ok()) {
    const auto again = ParseAddress(ToText(*address));
    FUZZ_CHECK(again.ok() && again->host == address->host && again->port == address->port);
  }
  const auto list = ParseAddressList(text);
  if (list.ok()) FUZZ_CHECK(!list->empty());
  return 0;
}
