// Dense tables that each worker keeps (TableConfig.COLLECTIVE).
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
// A rank that is lost ends the exchange of the others. They keep the tables, meet the next life of
// the rank (RankGroup), and agree where they continue (group_agreement.h): who lacks the tables
// gets them from another rank, and the open step is reduced anew if nobody has its mean gradients.
// If they cannot, the job goes back to its newest checkpoint, for which rank 0 writes the files.
//
// Invariants: buckets leave in the same order on all ranks.
//
// Memory: the replica, and one gradient in buckets. While a checkpoint is written, a copy of the
// replica.
//
// Thread safety: see dense_tables.h and rank_meetings.h.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/base/env.h"
#include "common/base/mutex.h"
#include "common/collective/collective.h"
#include "worker/dense_replica.h"
#include "worker/dense_tables.h"
#include "worker/gradient_buckets.h"
#include "worker/group_agreement.h"
#include "worker/rank_group.h"
#include "worker/rank_meetings.h"

namespace sluice {

class CollectiveDenseTables : public DenseTables, private RankMeetings {
 public:
  struct Options {
    // The dense tables that workers keep, in the order of Model::dense_tables().
    TableLayouts tables;
    // Their indices in Model::dense_tables(), ascending; empty: they are all of them.
    std::vector<size_t> indices;
    const JobSpec* spec = nullptr;  // outlives the tables, as does env
    std::unique_ptr<Collective> collective;
    Env* env = nullptr;
    // Describes this rank. `ranks`, `generation` and `holds_tables` are set by Create.
    RankGroup::Options group;
    // This life takes over the rank from an earlier one, and gets the tables from the others.
    bool rejoins = false;
  };
  // Loads the tables as the job starts (checkpoint, initial model or initial values), unless the
  // rank rejoins a job that trains. Errors: those of DenseReplica::Load.
  static absl::StatusOr<std::unique_ptr<CollectiveDenseTables>> Create(Options options);
  ~CollectiveDenseTables() override;

  void AddToPull(StepBuffers*, PullRequest*) const override {}
  // Has a place for each of Options::tables, in their order.
  std::vector<const float*> ValuesOf(const StepBuffers& pulled) const override;
  void AddToPush(const StepBuffers*, PushRequest*) const override {}

  bool leaves_early() const override { return true; }
  // REQUIRES: i is one of Options::indices.
  void Ready(const StepBuffers& gradients, double weight, size_t i) override;
  absl::Status Exchange(uint64_t step, const StepBuffers* gradients, double weight) override;
  void CloseStep(uint64_t steps) override;

  // The meetings of the ranks that keep these tables. Null: the job only evaluates, so they do not
  // meet.
  RankMeetings* meetings();

  absl::StatusOr<std::vector<SavedFile>> SaveModel(const std::string& directory,
                                                   const std::string& save_id) override;
  void SaveCheckpoint(uint64_t number, uint64_t step, Saved done) override;

  void Cancel() override { group_.Cancel(); }
  std::string WaitingFor() const override { return group_.WaitingFor(); }

 private:
  explicit CollectiveDenseTables(Options options);

  Collective* collective() override { return group_.collective(); }
  uint32_t rank() const override { return group_.rank(); }
  uint32_t ranks() const override { return group_.ranks(); }
  void Ask(uint64_t generation, const RankGroupCards& cards) override {
    group_.Ask(generation, cards);
  }
  void AddTo(PollRequest* report) const override { group_.AddTo(report); }
  const std::atomic<bool>& asked() const override { return group_.asked(); }
  absl::Status Attend() override;
  absl::Status Meet(uint64_t committed) override;
  absl::Status Recover(const absl::Status& why) override;
  absl::Status GiveUp(const absl::Status& why) override;
  uint64_t closed() const override { return replica_.closed(); }
  bool has_means() const override { return means_of_ == replica_.closed(); }
  ClosedStep* newest() override { return &newest_; }

  RankGroup::Options GroupOptions(RankGroup::Options options);
  // So many steps have closed, as the scheduler knows. True: the last one was open here.
  bool CloseAsTold(uint64_t steps);
  absl::Status LoadTables();
  // Copies the gradient of table t (of replica_) to its bucket; null: zeros. Sets status_ if it is
  // not finite.
  void Put(const float* gradient, size_t t) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Starts the exchange of the buckets that are full, in their order.
  void SendFull(double weight) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Begins the present step's exchange again.
  void EmptyBuckets() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status ReduceStep(const StepBuffers* gradients, double weight);

  // Agrees with the other ranks where all continue, and brings this rank there.
  absl::Status Agree(Collective& collective, uint64_t closed);
  absl::StatusOr<Agreement> Compare(Collective& collective, uint64_t closed);
  absl::Status TakeTables(Collective& collective, const Agreement& agreement);
  absl::Status TakeMeans(Collective& collective, const Agreement& agreement);
  absl::Status TakeNewest(Collective& collective, uint32_t from);

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
  Env* const env_;
  const bool alone_;  // the job only evaluates, so the ranks do not meet
  RankGroup group_;
  DenseReplica replica_;
  const std::vector<size_t> indices_;  // by table: its index in Model::dense_tables()
  std::vector<Place> places_;          // by table
  bool holds_;                         // the replica has the tables
  uint64_t committed_ = 0;             // by an earlier life; see Meet
  ClosedStep newest_;
  // The buckets have the means of this step. Written between steps, or by the training thread while
  // no thread of the network brings gradients.
  std::optional<uint64_t> means_of_;

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
