// The parts of the report's page, embedded at build time by cmake/embed.cmake.
//
// Thread safety: a free function, safe from any thread.
#pragma once

#include "absl/strings/string_view.h"
#include "common/base/page_file.h"

namespace sluice::cli {

// Null: there is none.
const PageFile* FindReportFile(absl::string_view path);

}  // namespace sluice::cli
