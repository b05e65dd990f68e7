// Dense tables that each worker keeps (SyncConfigs.dense: COLLECTIVE).
//
// A step:
//   1. Ready     a gradient is final: it is checked and copied to its bucket. A full bucket leaves,
//                in the order of the buckets, and the ranks reduce it while backward goes on.
//   2. Exchange  the other gradients follow. Returns when every bucket holds the weighted mean.
//   3. (trainer) The rank commits the step, which closes when all ranks have (StepCommit).
//   4. CloseStep All ranks make the same update. A rank that dies before 3 leaves the step open
//                everywhere, and no rank updates.
//
// A bucket has the wire type of its tables (TableConfig.wire_type): with BF16, gradients and their
// means are rounded, and half of the bytes travel. The update and the values are f32.
//
// Each bucket ends with one more value, 1: its mean tells whether any rank had examples. Without
// any, the tables are not updated, as on the pservers.
//
// A rank that is lost ends the exchange of the others. The job then begins another attempt from its
// newest checkpoint, for which rank 0 writes the files of the tables.
//
// Invariants: buckets leave in the same order on all ranks.
//
// Memory: the replica, and one gradient in buckets. While a checkpoint is written, a copy of the
// replica.
//
// Thread safety: see dense_tables.h.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/env.h"
#include "common/base/mutex.h"
#include "common/collective/collective.h"
#include "worker/dense_replica.h"
#include "worker/dense_tables.h"
#include "worker/gradient_buckets.h"

namespace sluice {

class CollectiveDenseTables : public DenseTables {
 public:
  struct Options {
    TableLayouts tables;            // the dense tables, by Model::dense_tables()
    const JobSpec* spec = nullptr;  // outlives the tables, as does env
    uint32_t rank = 0;
    std::unique_ptr<Collective> collective;
    Env* env = nullptr;
  };
  // Loads the tables as the job starts (checkpoint, initial model or initial values), and makes
  // this rank ready to be reached. Errors: those of DenseReplica::Load and Collective::Listen.
  static absl::StatusOr<std::unique_ptr<CollectiveDenseTables>> Create(Options options);
  ~CollectiveDenseTables() override;

  void AddToPull(StepBuffers*, PullRequest*) const override {}
  std::vector<const float*> ValuesOf(const StepBuffers& pulled) const override;
  void AddToPush(const StepBuffers*, PushRequest*) const override {}

  bool leaves_early() const override { return true; }
  void Ready(const StepBuffers& gradients, double weight, size_t i) override;
  absl::Status Exchange(uint64_t step, const StepBuffers* gradients, double weight) override;
  void CloseStep() override;

  Collective* collective() const override { return collective_.get(); }

  const std::string& card() const override { return card_; }
  absl::Status Join(const std::vector<std::string>& cards) override;

  absl::StatusOr<std::vector<SavedFile>> SaveModel(const std::string& directory,
                                                   const std::string& save_id) override;
  void SaveCheckpoint(uint64_t number, uint64_t step, Saved done) override;

  void Cancel() override { collective_->Cancel(); }
  std::string WaitingFor() const override { return collective_->WaitingFor(); }

 private:
  explicit CollectiveDenseTables(Options options);
  absl::Status LoadTables();
  // Copies the gradient to its bucket; null: zeros. Sets status_ if it is not finite.
  void Put(const float* gradient, size_t i) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Starts the exchange of the buckets that are full, in their order.
  void SendFull(double weight) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  struct Bucket;
  // INVALID_ARGUMENT names a table whose means are not finite.
  absl::Status CheckMeans(const Bucket& bucket) const;

  struct Bucket {
    GradientBucket plan;
    std::vector<size_t> offsets;  // by plan.tables
    std::vector<float> values;    // [elements + 1]
    size_t missing = 0;           // tables of the step that are not in it yet
    Collective::Ticket ticket = 0;
  };
  struct Place {
    size_t bucket = 0, offset = 0;
  };

  const JobSpec* const spec_;
  const uint32_t rank_;
  Env* const env_;
  const std::unique_ptr<Collective> collective_;
  DenseReplica replica_;
  std::vector<Place> places_;  // by table
  std::string card_;

  // Orders the threads that bring gradients. The means are read after Exchange, without it.
  Mutex mutex_;
  std::vector<Bucket> buckets_;
  std::vector<bool> put_ ABSL_GUARDED_BY(mutex_);  // by table, in this step
  size_t sent_ ABSL_GUARDED_BY(mutex_) = 0;        // buckets of this step that have left
  absl::Status status_ ABSL_GUARDED_BY(mutex_);    // of this step's gradients

  std::thread writer_;  // of the newest checkpoint's files
  Mutex writer_mutex_;
  bool writing_ ABSL_GUARDED_BY(writer_mutex_) = false;
};

}  // namespace sluice
