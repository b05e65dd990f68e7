// The values of a feature, one a line of a text file; and which of them has a key.
//
// Empty lines count: line i belongs to row i. A line may end with CR LF. The file may be gzip or
// zstd as data files are.
//
// Memory: the text, 8 bytes a line, and for MakeIndex 16 bytes a line.
//
// Thread safety: immutable after MakeIndex.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/env.h"
#include "model/table_files/feature_keys.h"

namespace sluice {

class Vocabulary {
 public:
  // INVALID_ARGUMENT: the file has no lines. Errors name the file.
  static absl::StatusOr<Vocabulary> Read(const std::string& path, Env* env);
  static Vocabulary Of(const std::vector<std::string>& values);

  size_t size() const { return ends_.size(); }
  // Lines that are not empty. REQUIRES: MakeIndex.
  size_t values() const { return by_key_.size(); }
  absl::string_view value(size_t line) const {
    const uint64_t begin = line == 0 ? 0 : ends_[line - 1];
    return absl::string_view(text_).substr(begin, ends_[line] - begin);
  }

  // For Find. Empty lines have no key. INVALID_ARGUMENT names a line whose value the feature cannot
  // have or is longer than 4 KiB, or two lines with one key.
  absl::Status MakeIndex(const FeatureKeys& keys);
  // The line of the value with this key.
  std::optional<uint32_t> Find(uint64_t key) const;

 private:
  std::string text_;  // without the ends of lines
  std::vector<uint64_t> ends_;
  std::vector<std::pair<uint64_t, uint32_t>> by_key_;  // sorted
};

}  // namespace sluice
