// This rank's copy of the dense tables that workers keep (TableConfig.COLLECTIVE): values,
// optimizer state and position of the schedule.
//
// All ranks start from the same values and make the same updates, so their copies stay equal to the
// bit. An update does what the pservers do with the mean of a step's gradients
// (server/shards/shard.h).
//
// Memory: the values and state of the tables.
//
// Thread safety: one thread. An Image is independent of the replica.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/env.h"
#include "common/base/mutex.h"
#include "common/table/table_layout.h"
#include "proto/model.pb.h"
#include "proto/pserver.pb.h"

namespace sluice {

class StartMap;

class DenseReplica {
 public:
  // Starts with initial values. `tables` are dense.
  explicit DenseReplica(TableLayouts tables);

  // Where values come from.
  struct Source {
    std::string directory;  // of a model or checkpoint
    bool state = false;     // a checkpoint: also optimizer state, counts and schedules
    // With `state`: a new job starts from the checkpoint, so its steps begin at 0, and tables that
    // the checkpoint lacks, or has no state of, start afresh. Tables follow their
    // TableConfig.start, as they do without `state`.
    bool new_job = false;
    std::optional<uint64_t> step;  // with `state`: the step that the checkpoint is of
  };
  // NOT_FOUND, INVALID_ARGUMENT: there is no such model, or it is of other tables. DATA_LOSS names
  // the damaged file. Errors of the Env. After an error the values are unspecified.
  absl::Status Load(const Source& source, Env* env);

  const TableLayouts& tables() const { return tables_; }
  // The values of tables()[i], [elements].
  const float* values(size_t i) const { return copies_[i].values.data(); }
  uint64_t closed() const { return closed_; }  // global steps that have closed

  // OUT_OF_RANGE: an update has made a value NaN or infinite. It names the first one.
  const absl::Status& finite() const { return finite_; }

  // Updates tables()[i] with the mean gradient of the step that closes, [elements].
  void Update(size_t i, const float* gradient);
  // The step has closed: the schedules go on. Call it after the updates, also when there were none.
  void CloseStep() { ++closed_; }

  // All values and optimizer state, and the counts: a copy with the same ones is equal to this one.
  // The arrays are valid as long as the replica.
  std::vector<absl::Span<float>> Arrays();
  std::vector<uint64_t> Counts() const;
  // `counts` must come from a replica of the same tables.
  void SetCounts(const std::vector<uint64_t>& counts);

  // The tables at one moment.
  struct Image {
    struct Table {
      std::shared_ptr<const TableLayout> layout;
      std::shared_ptr<const std::vector<float>> values;  // [1 + state floats][elements]
      std::optional<ShardFacts> facts;                   // absent: values only
    };
    std::vector<Table> tables;
  };
  // Copies the values; for a checkpoint (`state`) also what training needs to continue.
  Image Copy(bool state) const;
  // Writes the files of all tables durably, as pservers write theirs. Makes the folder if need be.
  // Errors of the Env; the files that were written are removed.
  static absl::StatusOr<std::vector<SavedFile>> Write(const Image& image,
                                                      const std::string& directory,
                                                      const std::string& save_id, Env* env);

 private:
  struct TableCopy {
    std::vector<float> values;   // [elements]
    std::vector<float> state;    // [state floats][elements]
    uint64_t count = 0;          // updates
    uint64_t schedule_base = 0;  // schedule steps before global step 0
  };
  struct SavedTable {
    const TableConfig* config;                  // in the manifest
    std::shared_ptr<const TableLayout> layout;  // of its files
    std::shared_ptr<const StartMap> start;      // null: it has the form of the job's table
  };
  absl::Status LoadTable(const Source& source, const Manifest& manifest, size_t i, Env* env);
  absl::Status LoadFile(const Source& source, const SavedTable& from, const SavedFile& file,
                        uint32_t block, size_t i, Env* env, ShardFacts* facts);

  const TableLayouts tables_;
  std::vector<TableCopy> copies_;
  uint64_t closed_ = 0;
  absl::Status finite_;
};

// Writes the files of a replica for checkpoints on a thread of its own, while training goes on.
//
// Memory: while files are written, a copy of the replica.
//
// Thread safety: Start is safe from any thread, as long as the replica does not change meanwhile.
class ReplicaWriter {
 public:
  // `env` outlives this.
  explicit ReplicaWriter(Env* env) : env_(env) {}
  // Waits until the files are written and `done` has returned.
  ~ReplicaWriter();

  // Copies the replica, and writes its files (DenseReplica::Write) on a thread of its own, where it
  // then calls `done`. Calls it at once, with UNAVAILABLE, while the files of an earlier call are
  // written.
  using Done = std::function<void(const absl::StatusOr<std::vector<SavedFile>>& files)>;
  void Start(const DenseReplica& replica, std::string directory, std::string save_id, Done done);

 private:
  struct Files {
    DenseReplica::Image image;
    std::string directory, save_id;
    Done done;
  };
  void Run();

  Env* const env_;
  Mutex mutex_;
  CondVar changed_;
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;  // with `next_`, or with files that Run has taken
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<Files> next_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // started under the mutex by the first Start
};

}  // namespace sluice
