// A cell of the data as it may appear in a message.
#pragma once

#include <string>
#include <string_view>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace sluice {

// In quotes, escaped, at most 40 bytes of it.
inline std::string QuotedCell(std::string_view cell) {
  const bool longer = cell.size() > 40;
  if (longer) cell = cell.substr(0, 40);
  return absl::StrCat("\"", absl::CHexEscape({cell.data(), cell.size()}), longer ? "...\"" : "\"");
}

}  // namespace sluice
