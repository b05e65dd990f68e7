// Parsed pieces of text files in binary files that are mapped instead of parsing the text again.
//
// Invariants: a cache file is used only when its checksums, its source (size and time of change),
// its piece and the fingerprint of the features fit; nothing here ever fails a job. Files appear
// under their name when whole. Format: little endian; a header of 4 KiB, then sections at multiples
// of 64 bytes, each with its CRC-32C:
//   label f32[n], weight f32[n] (none: all 1), numeric f32[n][numbers], key_offsets u32[n * slots +
//   1] (none: one key a slot), keys u64[], bad lines as text, one a line, a DataSummary.
//   <dir>/<32 hexadecimal digits of the SHA-256 of features, path and piece>.examples
// Memory: mapped files; pages are the system's to drop. Thread safety: safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "model/data/data_source.h"
#include "model/data/text_reader.h"
#include "model/features/batch.h"
#include "proto/config.pb.h"

namespace sluice {

// The lines that start in [begin, end) of the text of a file.
struct DataPiece {
  std::string path;
  uint64_t begin = 0, end = UINT64_MAX;
};

// Examples and what keeps them; `owner` is null when it is the caller's batch.
struct Examples {
  ExampleView view;
  std::shared_ptr<const void> owner;
};

class ExampleCache {
 public:
  struct Options {
    std::string dir;
    bool write = true;        // false: only what is there is used
    uint64_t max_bytes = 0;   // 0: half of what is free, not counting the cache
    std::string fingerprint;  // what decides how a line is read: see FingerprintOf
    size_t num_numeric = 0, num_slots = 0;
    std::function<void(const std::string&)> log;
  };
  explicit ExampleCache(Options options);

  // The examples of the piece, and adds its bad lines to *bad and, unless it is null, what its text
  // held to *summary. Null owner: there is no cache file that fits.
  Examples Find(const DataPiece& piece, const FileIdentity& source, BadLines* bad,
                DataSummary* summary);
  // Examples and malformed lines of the piece, by the cache file's header alone. None: there is no
  // cache file that fits.
  std::optional<uint64_t> CountLines(const DataPiece& piece, const FileIdentity& source) const;
  // Writes what the piece was parsed to. False when it did not: the reason is logged once.
  bool Store(const DataPiece& piece, const FileIdentity& source, const ExampleView& examples,
             const BadLines& bad, const DataSummary& summary);

 private:
  struct Mapped;
  std::string FileOf(const DataPiece& piece, std::string* digest) const;
  // INVALID_ARGUMENT or DATA_LOSS say why the file is not to be used.
  absl::StatusOr<std::shared_ptr<const Mapped>> Map(const std::string& file,
                                                    const std::string& digest,
                                                    const FileIdentity& source);
  absl::Status Write(const std::string& file, const std::string& digest, const FileIdentity& source,
                     const ExampleView& examples, const BadLines& bad, const DataSummary& summary);
  // RESOURCE_EXHAUSTED when max_bytes leaves no room for `bytes` more.
  absl::Status MakeRoom(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LogIgnored(const std::string& file, const absl::Status& why);

  const Options options_;
  const int64_t started_ns_;  // time of day, as that of files

  Mutex mutex_;
  bool writes_ ABSL_GUARDED_BY(mutex_);
  int ignored_ ABSL_GUARDED_BY(mutex_) = 0;  // files, with a log line
  uint64_t limit_ ABSL_GUARDED_BY(mutex_) = 0, used_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t stores_to_scan_ ABSL_GUARDED_BY(mutex_) = 0;  // before the folder is looked at again
  // Files whose checksums were right, by name: what they were then.
  absl::flat_hash_map<std::string, FileIdentity> verified_ ABSL_GUARDED_BY(mutex_);
};

// The part of the job that decides which examples a text gives.
std::string FingerprintOf(const JobConfig& job);

// Null when the job wants none. `log` outlives it.
std::unique_ptr<ExampleCache> MakeExampleCache(const JobConfig& job, const FeatureSchema& schema,
                                               std::function<void(const std::string&)> log);

// The examples of a piece: from the cache (null: none), else parsed into *scratch, which then must
// stay as it is while they are used, and stored. Adds what its text held to *summary unless that is
// null. Statuses as DataSource::ReadPiece with need_label, also for what is cached of a file that
// has changed.
absl::StatusOr<Examples> ReadExamples(const DataSource& data, const FeatureSchema& schema,
                                      ExampleCache* cache, const DataPiece& piece, Batch* scratch,
                                      BadLines* bad, DataSummary* summary = nullptr);

}  // namespace sluice
