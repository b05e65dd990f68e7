// Text from outside (files, cells, errors about them) as it may stand in a message to people and
// peers.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace sluice {

// Valid UTF-8, which protobuf strings must be: every byte that is no part of it, and every control
// character but the line end and the tab, as \xNN. Text that needs no change is returned as it is.
std::string Printable(absl::string_view text);

}  // namespace sluice
