// Tells paths of files from URLs, and refuses URLs by name: everything here reads and writes files
// of this host.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace sluice {

// True for a path with a scheme, such as "s3://bucket/a.csv".
bool HasScheme(absl::string_view path);

// Says why a path with a scheme cannot be used and what to do, such as "is a URL; ...". Empty for a
// path of a file.
std::string SchemeProblem(absl::string_view path);

}  // namespace sluice
