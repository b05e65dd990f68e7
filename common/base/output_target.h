// Where an output path leads through symbolic links, and how a file gets there whole.
//
// Thread safety: free functions.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace sluice {

// A regular file, or none yet, is replaced when all is written; a pipe or device is written in
// place.
struct OutputTarget {
  std::string path;
  bool in_place = false;
};
OutputTarget ResolveOutput(const std::string& path);

// The name, beside `path`, under which this process writes the file until it is whole. The same for
// each call with this path.
std::string UnfinishedName(const std::string& path);

// Gives the finished file its name. With `replace` false, ALREADY_EXISTS when another has it by
// now.
absl::Status PutInPlace(const std::string& unfinished, const std::string& path, bool replace);

}  // namespace sluice
