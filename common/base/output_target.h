// Resolves an output path through symbolic links, and puts a finished file in its place at once.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice {

// The path to write to, and how. A regular file or a free path is replaced when everything is
// written. A pipe or device is written in place.
struct OutputTarget {
  std::string path;
  bool in_place = false;
};
OutputTarget ResolveOutput(const std::string& path);

// INVALID_ARGUMENT, naming both, when the file or folder `output` is the folder `input` or lies in
// it, also through links. It need not exist. Both may be URLs.
absl::Status CheckIsOutside(const std::string& output, const std::string& input);

// The path that stands for this process's own standard output, which is written in place even when
// it is a regular file: others may write there, too.
inline constexpr char kStandardOutput[] = "-";

// The name next to `path` under which this process writes the file until it is whole. Every call
// with the same path returns the same name.
std::string UnfinishedName(const std::string& path);

// Creates the file `unfinished`, UnfinishedName(path), and returns its descriptor for writing.
// Errors name `path`. A file that already has the name was left by a killed process with this pid,
// or put there by somebody else. The name is removed; neither the file nor the target of a link is
// changed. ALREADY_EXISTS when that is not possible, as for a folder.
absl::StatusOr<int> CreateUnfinished(const std::string& unfinished, const std::string& path);

// Gives the finished file its name. With `replace` false, ALREADY_EXISTS when a file that is not
// empty has taken the name meanwhile.
absl::Status PutInPlace(const std::string& unfinished, const std::string& path, bool replace);

}  // namespace sluice
