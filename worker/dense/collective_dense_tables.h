// Dense tables that each worker keeps (TableConfig.COLLECTIVE).
//
// A step (GradientExchange):
//   1. Ready     a gradient is final. The ranks reduce it while backward goes on.
//   2. Send      all gradients are final. The ranks reduce the rest while the push to the pservers
//                is under way.
//   3. Exchange  returns when this rank has the weighted mean of all gradients.
//   4. (trainer) The rank commits the step, which closes when all ranks have (StepCommit).
//   5. CloseStep All ranks make the same update. A rank that dies before 4 leaves the step open
//                everywhere, and no rank updates.
//
// The update and the values are f32. When no rank had examples, the tables are not updated, as on
// the pservers.
//
// A rank that is lost ends the exchange of the others. They keep the tables, meet the next life of
// the rank (RankGroup), and agree where they continue (DenseRecovery): who lacks the tables gets
// them from another rank, and the open step is reduced anew if nobody has its mean gradients. If
// they cannot, the job goes back to its newest checkpoint, for which rank 0 writes the files.
//
// Memory: the replica, and one gradient. While a checkpoint is written, a copy of the replica.
//
// Thread safety: see dense_tables.h and rank_meetings.h.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/base/env.h"
#include "common/collective/collective.h"
#include "worker/dense/dense_recovery.h"
#include "worker/dense/dense_replica.h"
#include "worker/dense/dense_tables.h"
#include "worker/dense/open_step.h"
#include "worker/dense/rank_group.h"
#include "worker/dense/rank_meetings.h"

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
  void Send(uint64_t step, const StepBuffers* gradients, double weight) override;
  absl::Status Exchange(uint64_t step, const StepBuffers* gradients, double weight) override;
  absl::Status CloseStep(uint64_t steps) override;

  // The meetings of the ranks that keep these tables. Null: the job only evaluates, so they do not
  // meet.
  RankMeetings* meetings();

  absl::StatusOr<std::vector<SavedFile>> SaveModel(const std::string& directory,
                                                   const std::string& save_id) override;
  void SaveCheckpoint(uint64_t number, uint64_t step, Saved done) override;

  void Cancel() override { group_.Cancel(); }
  // Nobody waits while gradients leave during backward or beside the push.
  std::string WaitingFor() const override {
    return leaving_.load(std::memory_order_relaxed) ? "" : group_.WaitingFor();
  }

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
  absl::Status Recover(const absl::Status& why, uint64_t step) override;
  absl::Status GiveUp(const absl::Status& why) override;
  void EndAfter(uint64_t steps) override { group_.EndAfter(steps); }
  bool NeverCloses(uint64_t step) const override { return group_.NeverCloses(step); }
  absl::Status RunFor(uint64_t step, absl::FunctionRef<absl::Status()> operation) override {
    return group_.RunFor(step, operation);
  }
  uint64_t closed() const override { return step_.closed(); }
  bool has_means() const override { return step_.has_means(); }
  ClosedStep* newest() override { return recovery_.newest(); }

  RankGroup::Options GroupOptions(RankGroup::Options options);
  absl::Status LoadTables();
  void SendRest(uint64_t step, const StepBuffers* gradients, double weight);
  // By table of the replica; nulls for null.
  std::vector<const float*> GradientsOf(const StepBuffers* gradients) const;

  const JobSpec* const spec_;
  Env* const env_;
  const bool alone_;  // the job only evaluates, so the ranks do not meet
  RankGroup group_;
  const std::vector<size_t> indices_;  // by table: its index in Model::dense_tables()
  OpenStep step_;
  DenseRecovery recovery_;
  std::atomic<bool> leaving_{false};  // relaxed: for a text
  ReplicaWriter writer_;
};

}  // namespace sluice
