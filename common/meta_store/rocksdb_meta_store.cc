#include "common/meta_store/rocksdb_meta_store.h"

#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/options.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/file_lock.h"
#include "common/base/status_macros.h"
#include "common/meta_store/meta_store.h"

namespace sluice {
namespace {

constexpr char kTermKey[] = "@term";
constexpr char kDataPrefix[] = "@data/";
constexpr size_t kDataPrefixBytes = sizeof(kDataPrefix) - 1;
constexpr char kWhenDamaged[] =
    ". The folder is damaged: restore it from a copy, or move it away to start with an empty state";

// RocksDB's files of messages would lie among those of the state, and one that meets a full disk
// aborts the process (an assertion in Debian's build). Errors come back as statuses.
class NoLog : public rocksdb::Logger {
 public:
  void Logv(const char*, va_list) override {}
  void Logv(const rocksdb::InfoLogLevel, const char*, va_list) override {}
  void LogHeader(const char*, va_list) override {}
};

rocksdb::Options SmallOptions() {
  rocksdb::Options options;
  options.create_if_missing = true;
  // A record that is cut off at the end of the log is a commit that never returned, and is dropped.
  // Any other damage of the log is an error. RocksDB's default would drop all that follows it.
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;
  // Without preallocation a crash leaves no zeros inside of the log.
  options.allow_fallocate = false;
  options.compression = rocksdb::kNoCompression;

  // Sizes for a state of kilobytes to a few MiB. A log is about as large as a write buffer.
  options.write_buffer_size = 1 << 20;
  options.target_file_size_base = 4 << 20;
  options.max_manifest_file_size = 1 << 20;
  options.manifest_preallocation_size = 0;
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = rocksdb::NewLRUCache(1 << 20, /*num_shard_bits=*/0);
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));

  options.max_file_opening_threads = 1;
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;

  options.info_log = std::make_shared<NoLog>();
  return options;
}

// Without CURRENT, RocksDB takes a folder for a new one, and deletes the tables in it unless there
// is also a log. A crash while a new store is made leaves no CURRENT either, but there are no
// tables yet.
absl::Status CheckTablesHaveCurrent(Env* env, const std::string& dir) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> names, env->List(dir));
  std::string table;
  for (const std::string& name : names) {
    if (name == "CURRENT") return absl::OkStatus();
    if (absl::EndsWith(name, ".sst")) table = name;
  }
  if (table.empty()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("cannot open the scheduler's state in ", dir,
                                          ": there is ", table, ", but no file CURRENT",
                                          kWhenDamaged));
}

}  // namespace

absl::StatusOr<std::unique_ptr<RocksdbMetaStore>> RocksdbMetaStore::Open(Env* env,
                                                                         const std::string& dir) {
  SLUICE_RETURN_IF_ERROR(env->MakeDirs(dir));
  // The key of passes is in it (proto/state.proto).
  if (chmod(dir.c_str(), S_IRWXU) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("cannot keep other users out of the scheduler's state in ", dir, ": ",
                     std::strerror(errno), "; give a folder of the user who runs the scheduler"));
  }
  // RocksDB has its own lock, but does not say who holds it.
  absl::StatusOr<FolderLock> lock = FolderLock::Take(dir, env);
  if (absl::IsAlreadyExists(lock.status())) {
    const uint32_t pid = FileLock::HolderOf(dir);
    return absl::AlreadyExistsError(
        absl::StrCat("the scheduler's state in ", dir, " is in use by ",
                     pid > 0 ? absl::StrCat("the process with pid ", pid) : "another process",
                     ". Stop that scheduler first, or give this one its own folder"));
  }
  SLUICE_RETURN_IF_ERROR(lock.status());
  std::unique_ptr<RocksdbMetaStore> store(new RocksdbMetaStore(env, dir, *std::move(lock)));
  MutexLock mutex(&store->mutex_);
  SLUICE_RETURN_IF_ERROR(store->OpenDb());
  return store;
}

RocksdbMetaStore::RocksdbMetaStore(Env* env, std::string dir, FolderLock lock)
    : env_(env), dir_(std::move(dir)), lock_(std::move(lock)) {}

RocksdbMetaStore::~RocksdbMetaStore() = default;

absl::Status RocksdbMetaStore::OpenDb() {
  if (db_ != nullptr) return absl::OkStatus();
  SLUICE_RETURN_IF_ERROR(CheckTablesHaveCurrent(env_, dir_));
  rocksdb::DB* db = nullptr;
  rocksdb::Status status = rocksdb::DB::Open(SmallOptions(), dir_, &db);
  std::unique_ptr<rocksdb::DB> opened(db);
  // The state is small, so all of it can be checked now rather than when it is read.
  if (status.ok()) status = opened->VerifyChecksum();
  if (!status.ok()) return Error("open", status);
  db_ = std::move(opened);
  return absl::OkStatus();
}

// After a failed write, or a failed job in the background, RocksDB refuses all writes, and the end
// of its log is in an unknown state. The next call opens it again, which drops an incomplete record
// and begins a new log. (DB::Resume may continue in the old log, after the incomplete record.)
absl::Status RocksdbMetaStore::WriteSynced(rocksdb::WriteBatch* batch) {
  rocksdb::WriteOptions synced;
  synced.sync = true;
  const rocksdb::Status status = db_->Write(synced, batch);
  if (status.ok()) return absl::OkStatus();
  db_.reset();
  return Error("write", status);
}

absl::StatusOr<uint64_t> RocksdbMetaStore::ReadTerm() {
  std::string text;
  const rocksdb::Status status = db_->Get(rocksdb::ReadOptions(), kTermKey, &text);
  if (status.IsNotFound()) return 0;
  if (!status.ok()) return Error("read", status);
  uint64_t term;
  if (absl::SimpleAtoi(text, &term)) return term;
  return Error("read", rocksdb::Status::Corruption("the value of @term is not a number"));
}

absl::StatusOr<uint64_t> RocksdbMetaStore::AcquireTerm() {
  MutexLock lock(&mutex_);
  SLUICE_RETURN_IF_ERROR(OpenDb());
  SLUICE_ASSIGN_OR_RETURN(const uint64_t stored, ReadTerm());
  rocksdb::WriteBatch batch;
  batch.Put(kTermKey, absl::StrCat(stored + 1));
  SLUICE_RETURN_IF_ERROR(WriteSynced(&batch));
  acquired_ = stored + 1;
  return acquired_;
}

absl::Status RocksdbMetaStore::Commit(uint64_t term, absl::Span<const MetaStore::Write> writes) {
  MutexLock lock(&mutex_);
  SLUICE_RETURN_IF_ERROR(CheckCommit(term, acquired_, writes));
  SLUICE_RETURN_IF_ERROR(OpenDb());
  // Nobody else writes to the folder, so the term cannot change before the write.
  SLUICE_ASSIGN_OR_RETURN(const uint64_t stored, ReadTerm());
  if (stored != term) return TermMismatch(term, stored);
  if (writes.empty()) return absl::OkStatus();
  rocksdb::WriteBatch batch;
  for (const MetaStore::Write& write : writes) {
    const std::string key = absl::StrCat(kDataPrefix, write.key);
    if (write.value.has_value()) {
      batch.Put(key, *write.value);
    } else {
      batch.Delete(key);
    }
  }
  return WriteSynced(&batch);
}

absl::StatusOr<std::vector<MetaStore::Entry>> RocksdbMetaStore::Scan(const std::string& prefix) {
  MutexLock lock(&mutex_);
  SLUICE_RETURN_IF_ERROR(OpenDb());
  const std::string first = absl::StrCat(kDataPrefix, prefix);
  std::vector<Entry> entries;
  const std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator(rocksdb::ReadOptions()));
  for (it->Seek(first); it->Valid() && it->key().starts_with(first); it->Next()) {
    rocksdb::Slice key = it->key();
    key.remove_prefix(kDataPrefixBytes);
    entries.push_back({key.ToString(), it->value().ToString()});
  }
  if (!it->status().ok()) return Error("read", it->status());
  return entries;
}

absl::Status RocksdbMetaStore::Error(absl::string_view operation,
                                     const rocksdb::Status& status) const {
  const std::string text = status.ToString();
  const std::string what =
      absl::StrCat("cannot ", operation, " the scheduler's state in ", dir_, ": ", text);
  if (status.IsNoSpace()) {
    return absl::ResourceExhaustedError(absl::StrCat(what, ". Free space on this disk"));
  }
  // A file that another one names is missing.
  const bool missing = operation == "open" && status.IsIOError() &&
                       absl::StrContains(text, "No such file or directory");
  if (status.IsCorruption() || missing) {
    return absl::DataLossError(absl::StrCat(what, kWhenDamaged));
  }
  // On a file system where FolderLock has no effect.
  if (absl::StrContains(text, "lock hold by current process") ||
      absl::StrContains(text, "While lock file")) {
    return absl::AlreadyExistsError(absl::StrCat(
        what, ". Stop the scheduler that uses the folder, or give this one its own folder"));
  }
  return absl::UnavailableError(what);
}

}  // namespace sluice
