// Training and evaluation data: files, pieces of files, and their examples.
//
// Text is read plain, gzip or zstd (by magic bytes); offsets are those of the decompressed text. A
// piece holds the lines that start in [begin, end). Thread safety: const methods may run on several
// threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/data/data_files.h"
#include "model/data/example_stream.h"
#include "model/features/feature_schema.h"
#include "proto/config.pb.h"
#include "proto/scheduler.pb.h"

namespace sluice {

// Expands globs; sorted, no duplicates. NOT_FOUND names the pattern that matches nothing, and
// `base`: what relative ones were resolved against. PERMISSION_DENIED names the folder that this
// user may not read, so that nobody can say what it holds.
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

  // From here on every file of the job must be as `files` has seen it: what is read of one that has
  // changed, or changes meanwhile, is an error of DataFiles::CheckUnchanged. Not beside other
  // calls.
  void Expect(std::shared_ptr<const DataFiles> files) { files_ = std::move(files); }
  // FAILED_PRECONDITION when the file is no longer as it is expected.
  absl::Status CheckUnchanged(const std::string& path) const;

  // INVALID_ARGUMENT when the first line of the file must name the columns and lacks one that is
  // needed, or the file cannot be read: what can be said before anything starts.
  virtual absl::Status CheckColumns(const std::string& path, bool need_label) const;

  // Bytes of the decompressed text. For compressed text reads the whole file.
  virtual absl::StatusOr<uint64_t> TextBytes(const std::string& path) const = 0;

  // Without parsing them, counts the lines that ReadPiece makes examples or bad lines of: element i
  // for those that start in [begin + i * piece_bytes, begin + (i + 1) * piece_bytes), before `end`.
  // As many elements as it takes to reach the last line that starts before `end`.
  virtual absl::StatusOr<std::vector<uint64_t>> CountLines(const std::string& path, uint64_t begin,
                                                           uint64_t end,
                                                           uint64_t piece_bytes) const = 0;

  // Parses one piece; `end` may be UINT64_MAX. Header lines (by their file's first line) and
  // comments are not examples. Bad lines are counted and skipped; a missing column is an error of
  // the file, not of a line. Appends to *examples (already Reset) without example ids.
  virtual absl::Status ReadPiece(const std::string& path, uint64_t begin, uint64_t end,
                                 bool need_label, Batch* examples, BadLines* bad) const = 0;

  // The same lines for who takes them in order (prediction). The source outlives the stream.
  // INVALID_ARGUMENT when the data has no column id_column.
  virtual absl::StatusOr<std::unique_ptr<ExampleStream>> OpenStream(
      const ExampleStream::Options& options) const;

 protected:
  std::shared_ptr<const DataFiles> files_;  // null: any files
};

}  // namespace sluice
