// An Env whose files may also lie on stores (s3://) and, to be read, on web servers (https://,
// http://). The part of a path before "://" chooses the place; all else is `base`.
//
// A store has no folders: names with a slash make them, so MakeDirs and RemoveDir do nothing there.
// It has no renames either, and Publish stands for them. What grows, is locked or mapped must be
// local. ReadFile and Exists ask the place each time; the other reads trust what was seen of a file
// within kVersionHolds, and what this Env has written since.
//
// Memory: 128 MiB of file contents at most, the versions of the files that were looked at, and
// StoreWriter::kPartBytes for each file that is being written.
//
// Thread safety: safe from any thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/base/env.h"
#include "common/base/mutex.h"
#include "common/places/credentials.h"
#include "common/places/http_transport.h"
#include "common/places/place_use.h"
#include "common/places/range_cache.h"
#include "common/places/remote_files.h"
#include "common/places/retrying_transport.h"
#include "common/places/store_files.h"
#include "common/places/store_writer.h"

namespace sluice {

class PlacesEnv : public Env {
 public:
  struct Options {
    Env* base = nullptr;
    Clock* clock = nullptr;
    HttpTransport* transport = nullptr;  // without retries
    ReadVariable variable;               // the environment: credentials, endpoint, region
    int tries = 8;                       // of a request
    std::string no_web;                  // why web servers are not read; "": they are
    RangeCache::Options cache;
    size_t part_bytes = StoreWriter::kPartBytes;  // of uploads
  };
  // What the pointers lead to outlives this.
  explicit PlacesEnv(Options options);
  ~PlacesEnv() override;

  // The machine's files, and all places that the process's environment leads to.
  // `tries`, `no_web`: see Options.
  static std::unique_ptr<PlacesEnv> Real(int tries = 8, const std::string& no_web = "");

  // Name of a place, "s3" or "http", and what was asked of it.
  const std::map<std::string, const PlaceUse*>& use() const { return use_; }
  // Ends the requests that are under way or wait for another try, at the end of the process. Later
  // ones fail.
  void Stop();

  FilePlace PlaceOf(const std::string& path) override;
  absl::StatusOr<FileInfo> Look(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<FileReader>> NewReader(const std::string& path) override;
  absl::StatusOr<FileMatches> Match(const std::string& pattern, size_t most_names) override;
  absl::StatusOr<std::string> ReadFile(const std::string& path) override;
  absl::StatusOr<std::string> ReadRange(const std::string& path, uint64_t offset,
                                        uint64_t n) override;
  absl::StatusOr<uint64_t> FileSize(const std::string& path) override;
  bool Exists(const std::string& path) override;
  absl::Status WriteFile(const std::string& path,
                         absl::Span<const absl::string_view> pieces) override;
  absl::StatusOr<std::unique_ptr<NewFile>> StartFile(const std::string& path) override;
  absl::Status AppendToFile(const std::string& path, absl::string_view bytes) override;
  absl::Status RenameFile(const std::string& from, const std::string& to) override;
  absl::StatusOr<FileIdentity> Publish(const std::string& path, absl::string_view bytes,
                                       const std::optional<FileIdentity>& expected) override;
  absl::Status GiveUpFiles(const std::string& folder,
                           const std::function<bool(const std::string&)>& is_leftover) override;
  absl::Status MakeDirs(const std::string& path) override;
  absl::Status MakeNewDir(const std::string& path) override;
  absl::Status RemoveDir(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override;
  absl::Status RemoveFile(const std::string& path) override;
  absl::StatusOr<int> OpenFile(const std::string& path, int flags, uint32_t mode) override;

  // A version that was seen so lately is not asked for again. A read of another version fails in
  // any case.
  static constexpr absl::Duration kVersionHolds = absl::Seconds(10);

 private:
  struct Seen {
    FileIdentity identity;
    absl::Time at;
  };
  // The files of the path's place. INVALID_ARGUMENT says why there are none.
  absl::StatusOr<RemoteFiles*> FilesOf(const std::string& path);
  // The reader and the writer of a store. Their errors name the operation and the path.
  struct Store {
    StoreFiles* files;
    StoreWriter* writer;
  };
  absl::StatusOr<Store> StoreOf(absl::string_view operation, const std::string& path);
  absl::Status MakeStore() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Remember(const std::string& path, const FileIdentity& identity);
  void Forget(const std::string& path);

  const Options options_;
  std::unique_ptr<HttpTransport> own_transport_;  // null: options_.transport is used
  PlaceUse of_stores_, of_web_;
  const std::map<std::string, const PlaceUse*> use_;
  RetryingTransport to_stores_, to_web_;
  const std::unique_ptr<RemoteFiles> web_;
  Mutex mutex_;
  // Made when the first path leads to a store.
  std::unique_ptr<RetryingTransport> to_services_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<CredentialSource> credentials_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<StoreFiles> store_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<StoreWriter> writer_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Seen> seen_ ABSL_GUARDED_BY(mutex_);
  RangeCache cache_;  // destroyed first: its threads use the files
};

// PlacesEnv::Real() for programs that end at any time; never destroyed.
PlacesEnv* AllPlaces();

}  // namespace sluice
