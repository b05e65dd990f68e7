// Formats a cell of the data for a message.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <string>
#include <string_view>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace sluice {

// The first 40 bytes of the cell, escaped and in quotes.
inline std::string QuotedCell(std::string_view cell) {
  const bool longer = cell.size() > 40;
  if (longer) cell = cell.substr(0, 40);
  return absl::StrCat("\"", absl::CHexEscape({cell.data(), cell.size()}), longer ? "...\"" : "\"");
}

}  // namespace sluice
