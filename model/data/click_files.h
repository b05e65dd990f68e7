// Writes the data of a ClickGenerator into files, on several threads.
//
// Invariants: the files, decompressed and concatenated, hold the same lines for any number of files
// and threads.
//
// Memory: two chunks of about 1 MB per thread.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/data/click_generator.h"

namespace sluice {

enum class Compression { kNone, kGzip, kZstd };
// "", ".gz", ".zst"
const char* SuffixOf(Compression compression);

struct ClickFiles {
  ClickOptions data;
  uint64_t skip = 0;      // lines of the data before the first one written
  uint64_t examples = 0;  // of all files, which share them evenly
  std::vector<std::string> paths;
  Compression compression = Compression::kNone;
  int threads = 1;
  bool replace = true;  // existing files; false: ALREADY_EXISTS, and they stay as they are
  // Called once the file at paths[i] is complete and has its name; not for pipes and devices. One
  // call at a time, on any of the threads.
  std::function<void(size_t i)> on_finished;
};

struct ClickSummary {
  ClickSums sums;
  uint64_t text_bytes = 0;  // before compression
  uint64_t file_bytes = 0;
};

// Each file is written under its UnfinishedName and renamed once complete. A path that is a pipe or
// device, or kStandardOutput, is written in place. Errors name the file; unfinished files are
// removed, and so are those that killed runs with the same paths have left.
absl::StatusOr<ClickSummary> WriteClickFiles(const ClickFiles& files);

}  // namespace sluice
