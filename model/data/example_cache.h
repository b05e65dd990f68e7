// Keeps parsed pieces of text in a folder of binary files, which are mapped instead of parsing the
// text again. Decides when a file is made, used and removed; ExampleFile is what is in it.
//
// Invariants: a cache file is used only when its checksums, its source (size, times of
// modification and of change), its piece and the fingerprint of the features match. A file gets its
// name only once it is complete. No error of the cache fails a job, unless the owner of a file
// changes it while it is mapped.
//
// Safety:
// - A file is not used when it belongs to another user than this one and root, or when its group or
//   others may write to it.
// - A folder is not used when it belongs to such a user, or when everybody may write to it and it
//   is not sticky. The group may write to it, as is usual with umask 002: it can remove and rename
//   files, but not change them.
// - The owner of a file can change it after its checksums were checked. Impossible offsets of keys
//   then end the job (Batch::Append), and other values are trained. When the file is truncated, the
//   kernel ends the process with SIGBUS.
//
// Format: the name of a file is
// <dir>/<32 hexadecimal digits of the SHA-256 of features, path and piece>.examples
//
// Thread safety: safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/clock.h"
#include "common/base/env.h"
#include "common/base/mutex.h"
#include "model/data/data_source.h"
#include "model/data/example_file.h"
#include "model/data/text_reader.h"
#include "model/features/batch.h"
#include "model/features/feature_schema.h"
#include "proto/config.pb.h"
#include "proto/scheduler.pb.h"

namespace sluice {

// The lines that start in [begin, end) of the text of a file.
struct DataPiece {
  std::string path;
  uint64_t begin = 0, end = UINT64_MAX;
  // The size of the other pieces of this file, if this is the last piece and its end is not known
  // (compressed text); else 0. Jobs that cut the same file differently must not share such a piece:
  // one job's last piece may be another job's whole file.
  uint64_t piece_bytes = 0;
};

// Examples and the owner of their memory; `owner` is null when they are in the caller's batch.
struct Examples {
  ExampleView view;
  std::shared_ptr<const void> owner;
};

class ExampleCache {
 public:
  struct Options {
    Env* env = nullptr;      // required; outlives the cache
    Clock* clock = nullptr;  // required; outlives the cache
    std::string dir;
    bool write = true;        // false: only existing files are used
    uint64_t max_bytes = 0;   // 0: half of the space that is free without the cache
    std::string fingerprint;  // of all options that affect parsing: see FingerprintOf
    size_t num_numeric = 0, num_slots = 0;
    std::function<void(const std::string&)> log;
  };
  explicit ExampleCache(Options options);

  // Returns the examples of the pieces, which are one entry of the cache. `source` identifies all
  // of their files. Adds their bad lines to *bad and the summary of its data to *summary, which may
  // be null. A null owner means that there is no matching cache file.
  Examples Find(absl::Span<const DataPiece> pieces, const FileIdentity& source, BadLines* bad,
                DataSummary* summary);
  // The number of examples and malformed lines of the piece, from the cache file's header alone.
  // nullopt when there is no matching cache file.
  std::optional<uint64_t> CountLines(const DataPiece& piece, const FileIdentity& source) const;
  // Writes the examples that the pieces were parsed into. False when it did not; the first error is
  // logged and ends all writing.
  bool Store(absl::Span<const DataPiece> pieces, const FileIdentity& source,
             const ExampleView& examples, const BadLines& bad, const DataSummary& summary);

 private:
  // The file of an entry in the folder, and what it must have been made from.
  struct Target {
    std::string name;
    ExampleOrigin origin;
  };
  Target TargetOf(absl::Span<const DataPiece> pieces, const FileIdentity& source) const;
  // The caller closes it.
  absl::StatusOr<int> OpenFolder() const;
  // The status of Map when the folder cannot be used. Logs the reason once, if Store will not.
  absl::Status FolderStatus(const absl::Status& opened);
  // INVALID_ARGUMENT, DATA_LOSS or PERMISSION_DENIED says why the file must not be used.
  absl::StatusOr<std::shared_ptr<const ExampleFile>> Map(const Target& target);
  absl::Status Write(const Target& target, const ExampleView& examples, const BadLines& bad,
                     const DataSummary& summary);
  // RESOURCE_EXHAUSTED when max_bytes leaves no room for `bytes` more.
  absl::Status MakeRoom(int folder, uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t NowNs() const;
  void LogIgnored(const std::string& name, const absl::Status& why);

  const Options options_;
  const int64_t started_ns_;  // wall clock, to compare with the times of files

  Mutex mutex_;
  bool writes_ ABSL_GUARDED_BY(mutex_);
  bool folder_logged_ ABSL_GUARDED_BY(mutex_) = false;
  int ignored_ ABSL_GUARDED_BY(mutex_) = 0;  // files found unusable; the first ones are logged
  uint64_t limit_ ABSL_GUARDED_BY(mutex_) = 0, used_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t stores_to_scan_ ABSL_GUARDED_BY(mutex_) = 0;  // left before the folder is scanned again
  // The identities of files whose checksums were correct, by name.
  absl::flat_hash_map<std::string, FileIdentity> verified_ ABSL_GUARDED_BY(mutex_);
};

// Identifies everything that decides which examples a text is parsed into. `schema` belongs to the
// job's model.
std::string FingerprintOf(const JobConfig& job, const FeatureSchema& schema);

// Null when the job wants no cache. `env`, `clock` and `log` outlive it.
std::unique_ptr<ExampleCache> MakeExampleCache(const JobConfig& job, const FeatureSchema& schema,
                                               Env* env, Clock* clock,
                                               std::function<void(const std::string&)> log);

}  // namespace sluice
