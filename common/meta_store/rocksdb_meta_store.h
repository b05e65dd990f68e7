// A MetaStore in a folder of this host, on RocksDB: the embedded engine.
//
// One object at a time, in any process, holds the folder. A commit is synced to disk before it
// returns.
//
// Memory: a few MiB in addition to the state. RocksDB has three threads in the background.
//
// Format: a RocksDB with the keys
//   @term       the newest term, in decimal digits
//   @data/KEY   the value of KEY
//
// Thread safety: safe from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/env.h"
#include "common/base/file_lock.h"
#include "common/base/mutex.h"
#include "common/meta_store/meta_store.h"

namespace rocksdb {
class DB;
class Status;
class WriteBatch;
}  // namespace rocksdb

namespace sluice {

class RocksdbMetaStore : public MetaStore {
 public:
  // Opens the store in the folder. Makes the folder and its parents when they are missing. `env`,
  // which outlives the store, only makes and lists folders: RocksDB reads and writes its own files.
  //
  // ALREADY_EXISTS: another object holds the folder; the message names its process. DATA_LOSS: the
  // folder is damaged. RESOURCE_EXHAUSTED: the disk is full. PERMISSION_DENIED, UNAVAILABLE and
  // others: the folder cannot be made, read or written.
  static absl::StatusOr<std::unique_ptr<RocksdbMetaStore>> Open(Env* env, const std::string& dir);
  ~RocksdbMetaStore() override;

  absl::StatusOr<uint64_t> AcquireTerm() override;
  absl::Status Commit(uint64_t term, absl::Span<const Write> writes) override;
  absl::StatusOr<std::vector<Entry>> Scan(const std::string& prefix) override;

 private:
  RocksdbMetaStore(Env* env, std::string dir, FolderLock lock);

  absl::Status OpenDb() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WriteSynced(rocksdb::WriteBatch* batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<uint64_t> ReadTerm() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Error(absl::string_view operation, const rocksdb::Status& status) const;

  Env* const env_;
  const std::string dir_;
  const FolderLock lock_;
  // Held during reads and writes of the disk, which must happen one after another.
  Mutex mutex_;
  std::unique_ptr<rocksdb::DB> db_ ABSL_GUARDED_BY(mutex_);  // null: to be opened by the next call
  uint64_t acquired_ ABSL_GUARDED_BY(mutex_) = 0;            // newest own term; 0: none
};

}  // namespace sluice
