// Tells paths of files from URLs, and refuses URLs by name. Data files, and what jobs write, may
// lie in places that have URLs (common/places); all other files are those of this host.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace sluice {

// True for a path with a scheme, such as "s3://bucket/a.csv".
bool HasScheme(absl::string_view path);
// True for "s3:/bucket/a.csv" and the like, which would be a folder "s3:" of the current folder.
bool IsMistypedUrl(absl::string_view path);

// Says why a path with a scheme cannot be used where a file of this host is needed, and what to do,
// such as "is a URL; ...". Empty for a path of a file.
std::string SchemeProblem(absl::string_view path);
// The same for what a job writes, and what it starts from. Empty for a path of a file, and for
// s3://. A mistyped URL is refused, too.
std::string OutputUrlProblem(absl::string_view path);
// The same for a data file. Empty for a path of a file, and for s3://, https:// and http://.
std::string DataUrlProblem(absl::string_view path);

}  // namespace sluice
