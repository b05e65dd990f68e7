// A file of a page, embedded at build time by cmake/embed.cmake.
//
// Thread safety: plain data.
#pragma once

#include "absl/strings/string_view.h"

namespace sluice {

struct PageFile {
  const char* path;  // such as "/page/dashboard.js"
  const char* type;  // for the Content-Type header
  absl::string_view body;
};

}  // namespace sluice
