// Keeps parts of remote files in memory, and fetches parts ahead of their use, several at once.
//
// A part is any range of bytes. Readers that go through a file agree on parts of `part_bytes`, so
// that they share them.
//
// Memory: at most `most_bytes` of parts, besides those that readers hold; each reader holds one. Up
// to half of them are fetched ahead, and stay until they are used or given up; the others go when
// they were not used for the longest time.
//
// Thread safety: safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>

#include "absl/status/statusor.h"
#include "common/base/file_identity.h"
#include "common/base/mutex.h"
#include "common/base/ranges_reader.h"
#include "common/base/task_threads.h"
#include "common/places/remote_files.h"

namespace sluice {

class RangeCache {
 public:
  struct Options {
    size_t part_bytes = 1 << 20;
    size_t most_bytes = 128 << 20;
    int threads = 16;  // requests ahead of use, at one time
  };
  using Part = std::shared_ptr<const std::string>;

  explicit RangeCache(const Options& options);
  // Fetches that run are waited for.
  ~RangeCache();

  // A version of a file.
  struct File {
    RemoteFiles* files = nullptr;  // outlives the cache
    std::string path;
    FileIdentity identity;
  };
  // A short part at the beginning of a file, by which its form is told: each reader of the file
  // begins with it.
  static constexpr size_t kHeadBytes = 64 << 10;
  // The part `range`, or what the file has of it, from memory or fetched now. REQUIRES: it begins
  // in the file. Statuses as RemoteFiles::ReadRange. *fetched: it was not in memory.
  absl::StatusOr<Part> Get(const File& file, const FileRange& range, bool* fetched);
  // Fetches the part in the background, unless it is here, on its way, or there is no room.
  void Prefetch(const File& file, const FileRange& range);
  // Whether the part is in memory, or on its way there.
  bool Has(const File& file, const FileRange& range);
  // Nobody waits for the part any more, which Prefetch may have fetched. It stays like one
  // that was used.
  void GiveUp(const File& file, const FileRange& range);
  // The readers that fetch ahead share the room for that.
  void AddReader();
  void RemoveReader();
  // Parts of part_bytes that one of them may fetch ahead, at least 1.
  uint64_t AheadOfReader();
  size_t part_bytes() const { return options_.part_bytes; }

 private:
  struct Entry {
    Part part;           // null while it is fetched
    absl::Status error;  // of the fetch
    bool done = false;
    size_t bytes = 0;                       // that were asked for
    bool ahead = false;                     // fetched ahead, and not used yet
    std::list<std::string>::iterator used;  // in order_, once done and not ahead
  };
  using EntryPtr = std::shared_ptr<Entry>;

  size_t MostAhead() const { return options_.most_bytes / 2; }
  static std::string NameOf(const File& file, const FileRange& range);
  // Returns how many bytes of a range that begins in the file the file has.
  static size_t BytesOf(const File& file, const FileRange& range);
  absl::StatusOr<Part> Fetch(const File& file, const FileRange& range);
  // The entry was fetched ahead and is like others now.
  void EndAhead(const std::string& name, Entry* entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Finish(const std::string& name, const EntryPtr& entry, absl::StatusOr<Part> part);

  const Options options_;
  Mutex mutex_;
  CondVar fetched_;
  std::unordered_map<std::string, EntryPtr> entries_ ABSL_GUARDED_BY(mutex_);
  std::list<std::string> order_ ABSL_GUARDED_BY(mutex_);  // names; the least recently used first
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;              // of the parts that are done
  size_t ahead_ ABSL_GUARDED_BY(mutex_) = 0;              // bytes of entries that are ahead
  size_t readers_ ABSL_GUARDED_BY(mutex_) = 0;            // that fetch ahead
  std::unique_ptr<TaskThreads> threads_ ABSL_GUARDED_BY(mutex_);  // null before the first use
};

}  // namespace sluice
