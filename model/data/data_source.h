// Training and evaluation data: files, pieces of files, and their examples.
//
// Text is read plain, gzip or zstd (by magic bytes); offsets are those of the decompressed text. A
// piece holds the lines that start in [begin, end). Thread safety: const methods may run on several
// threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/features/feature_schema.h"
#include "proto/config.pb.h"
#include "proto/scheduler.pb.h"

namespace sluice {

// Expands globs; sorted, no duplicates. NOT_FOUND names the pattern that matches nothing, and
// `base`: what relative ones were resolved against.
absl::StatusOr<std::vector<std::string>> ExpandFiles(
    const google::protobuf::RepeatedPtrField<std::string>& patterns,
    const std::string& base = "the folder of the job file");

// Counted always; the first ones are kept to be named.
struct BadLines {
  static constexpr size_t kNamed = 5;
  uint64_t count = 0;
  std::vector<std::string> first;  // "file:line: reason"
  // When set, receives for each bad line the number of examples before it in the batch being read.
  std::vector<uint64_t>* positions = nullptr;
  void Add(const std::string& where, const absl::Status& why);
  void Merge(const BadLines& other);
  std::string Describe() const;
};

class DataSource {
 public:
  // INVALID_ARGUMENT when format and features do not fit (column not in the declared columns, ...).
  static absl::StatusOr<std::unique_ptr<DataSource>> Create(
      const DataConfig& config, std::shared_ptr<const FeatureSchema> schema);
  virtual ~DataSource() = default;

  // Bytes of the decompressed text. For compressed text reads the whole file.
  virtual absl::StatusOr<uint64_t> TextBytes(const std::string& path) const = 0;

  // Parses one piece; `end` may be UINT64_MAX. Header lines (by their file's first line) and
  // comments are not examples. Bad lines are counted and skipped; a missing column is an error of
  // the file, not of a line. Appends to *examples (already Reset) without example ids.
  virtual absl::Status ReadPiece(const std::string& path, uint64_t begin, uint64_t end,
                                 bool need_label, Batch* examples, BadLines* bad) const = 0;
};

}  // namespace sluice
