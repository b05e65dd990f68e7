// Fills the shards of one pserver from a saved model or a checkpoint. Reads only the parts of files
// that can hold their values.
//
// Files and shards both divide the keys by their hash (common/base/hash.h), so any number of
// files loads into any number of shards. A new job may take rows and columns of tables of another
// form (common/saved_model/start_map.h).
//
// Memory: the indexes of the files, and a few MiB per thread.
//
// Thread safety: one thread. Load starts its own threads, which have ended when it returns.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/base/env.h"
#include "common/base/mutex.h"
#include "common/saved_model/shard_file_reader.h"
#include "common/saved_model/start_map.h"
#include "server/shards/shard.h"

namespace sluice {

// Counts how much of a job's initial model or checkpoint has been read, and can cancel the load.
//
// Thread safety: safe from any thread. The counters are relaxed, because nothing else depends on
// them.
class LoadProgress {
 public:
  // Bytes of files to be read, and bytes read so far.
  void Plan(uint64_t bytes) { planned_.fetch_add(bytes, std::memory_order_relaxed); }
  void Add(uint64_t bytes) { read_.fetch_add(bytes, std::memory_order_relaxed); }
  uint64_t planned() const { return planned_.load(std::memory_order_relaxed); }
  uint64_t read() const { return read_.load(std::memory_order_relaxed); }

  // Ends the load at its next read, with CANCELLED.
  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

  // Call when the load has read all copies and asks the follower to drop them.
  void HasAllCopies() {
    int reading = kReading;
    copies_.compare_exchange_strong(reading, kHasAll);
  }
  // Call when the scheduler has given the copies up. True when the load has all of them and will
  // succeed; otherwise cancel it.
  bool CopiesAreVoid() {
    int reading = kReading;
    if (copies_.compare_exchange_strong(reading, kVoid)) return false;
    return reading != kVoid && copies_.exchange(kVoidWithAll) != kVoid;
  }
  // True when the load need not wait for the copies to be dropped.
  bool copies_are_void() const { return copies_.load() == kVoidWithAll; }

 private:
  enum : int { kReading, kHasAll, kVoid, kVoidWithAll };
  std::atomic<uint64_t> planned_{0}, read_{0};
  std::atomic<bool> cancelled_{false};
  std::atomic<int> copies_{kReading};
};

class ModelLoader {
 public:
  struct Options {
    std::string directory;
    // True: restores a checkpoint with its optimizer state and positions. False: loads only the
    // values of a model or checkpoint.
    bool state = false;
    std::optional<uint64_t> step;  // with `state`, in sync: the step that the checkpoint is of
    // With `state`: a new job starts from the checkpoint. Steps and delivery begin at 0, and tables
    // that the checkpoint lacks keep their initial values. A table gets its values alone when only
    // the checkpoint or only the job has optimizer state for it (one of the two jobs is Geo).
    // Tables follow their TableConfig.start, as they do without `state`.
    bool new_job = false;
    // With `state`: the checkpoint is of this instance of the job, so shards also get what they
    // held of each rank.
    bool same_instance = false;
    uint32_t threads = 1;
    Env* env = nullptr;                // required; outlives the loader
    LoadProgress* progress = nullptr;  // required; outlives the loader
    // If the rows need more bytes than this, none is loaded.
    std::function<uint64_t()> available_memory = [] { return UINT64_MAX; };
  };
  // `layouts` and `shards` outlive the loader.
  ModelLoader(Options options, const TableLayouts& layouts, const ShardTable* shards);

  // RESOURCE_EXHAUSTED also when a table has more rows than its max_rows.
  // INVALID_ARGUMENT: the model's tables or the checkpoint's optimizers are not those of the job,
  // or a model has no state to restore. DATA_LOSS names the damaged file. CANCELLED:
  // progress->Cancel(). RESOURCE_EXHAUSTED: no memory for the rows. Errors of the Env. After an
  // error the shards may be filled in part.
  absl::Status Load();

 private:
  // Runs of one file that one thread reads one after the other.
  struct Piece {
    const ShardFileReader* file;
    size_t table;
    uint32_t begin, end;   // runs
    uint32_t first_shard;  // of those that the runs can belong to
    uint32_t turn;         // how many pieces of first_shard come before it
  };

  // Records of rows, one after the other.
  struct RecordView {
    const char* data;
    size_t bytes, record_bytes;
    size_t behind_key;  // where what a shard takes begins in a record
  };

  // Records of a file, grouped by the shard that they belong to. Each thread reuses its own.
  struct RowsByShard {
    struct Rows {
      std::vector<uint64_t> keys;
      std::vector<const char*> records;  // the bytes after their keys
    };
    std::vector<Rows> rows;        // by shard
    std::vector<uint32_t> shards;  // those with rows
    std::vector<char> converted;   // records that `rows` point to, if the table has another form
    std::vector<float> row;
  };

  // Compares the tables of the model, or checkpoint, with those of the job.
  absl::Status CheckManifest(const Manifest& manifest) const;
  absl::Status Plan(const Manifest& manifest);
  absl::Status PlanTable(const Manifest& manifest, const TableConfig& saved, size_t table);
  // Whether this pserver needs a file of the table.
  bool NeedsFile(size_t table, uint32_t file, const TableConfig& saved) const;
  absl::Status PlanFile(const TableConfig& saved, const SavedFile& file, uint32_t shard,
                        size_t table);
  void PlanRuns(const ShardFileReader& file, size_t table);
  // Whether values of a dense file belong to blocks of this pserver.
  bool HasElementsOf(const ShardFileReader& file, size_t table) const;
  // Returns the fraction of the part's keys that belongs to this pserver's shards.
  double ShareHere(size_t table, uint32_t part, uint32_t parts) const;
  // With options_.state: checks that the file has the state that the table's shards need, and that
  // it is of options_.step.
  // With options_.new_job: finds out whether the table gets values alone.
  absl::Status CheckState(const ShardFileReader& file, size_t table);
  // Sets facts_ to those with which a new job starts.
  void StartFacts(const CheckpointState& from);
  void RestorePositions();
  absl::Status CheckMemory() const;

  // The loop of each thread: loads pieces until none is left or a thread has failed.
  void Work();
  bool failed();
  absl::Status LoadPiece(const Piece& piece, RowsByShard* scratch);
  void LoadRows(size_t table, const ShardFileReader& file, const std::string& bytes,
                RowsByShard* scratch);
  void StoreElements(size_t table, uint64_t shard, uint32_t array, uint64_t first,
                     const float* values, size_t n);
  // Replaces records of the saved form by records of the table's, in scratch->converted.
  void ConvertRows(size_t table, const ShardFileReader& file, RecordView* records,
                   RowsByShard* scratch) const;
  // Loads records of a dense file from number *at on, and advances *at.
  void LoadElements(const Piece& piece, const std::vector<float>& values, uint64_t* at);

  const Options options_;
  const TableLayouts& layouts_;
  const ShardTable& shards_;
  std::vector<std::unique_ptr<ShardFileReader>> files_;
  // With options_.state: facts of files_, by table and the file's shard.
  std::map<std::pair<size_t, uint32_t>, ShardFacts> facts_;
  std::vector<uint32_t> saved_shards_;  // [table]; 0: the checkpoint lacks the table
  bool of_geo_ = false;                 // the checkpoint
  // [table]; null: the saved table has the form of the job's.
  std::vector<std::shared_ptr<const StartMap>> starts_;
  std::vector<bool> values_only_;  // [table]: no state is restored
  std::vector<Piece> pieces_;
  double row_bytes_ = 0;  // of memory, for the rows that are to be loaded
  std::map<std::pair<size_t, uint32_t>, uint32_t> turns_;  // pieces by table and first_shard

  Mutex mutex_;
  size_t next_piece_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
