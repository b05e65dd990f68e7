// Chooses who keeps the dense tables of a job, by TableConfig.update_at: pservers, its workers, or
// both.
//
// Thread safety: a free function.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "common/collective/collective.h"
#include "common/table/table_layout.h"
#include "model/model.h"
#include "proto/scheduler.pb.h"
#include "worker/dense/dense_tables.h"
#include "worker/dense/rank_group.h"
#include "worker/dense/rank_meetings.h"

namespace sluice {

struct DenseTablesOptions {
  const Model* model = nullptr;   // outlives the tables, as do spec and env
  const JobSpec* spec = nullptr;  // with the tables of the model
  TableLayouts layouts;           // of all tables
  Env* env = nullptr;             // for the files of checkpoints and models
  bool rejoins = false;           // as in CollectiveDenseTables::Options, as is group
  RankGroup::Options group;
  // Makes the engine for tables that workers keep. Called only if there are any. Null: jobs with
  // such tables fail.
  std::function<absl::StatusOr<std::unique_ptr<Collective>>(const JobConfig& config)>
      make_collective;
};

struct JobDenseTables {
  std::unique_ptr<DenseTables> tables;
  // Owned by `tables`. Null when the ranks need not meet: pservers keep all tables, or the job only
  // evaluates.
  RankMeetings* meetings = nullptr;
};

// The tables of a job in which workers keep some and pservers the others. Made by MakeDenseTables.
//
// A step passes through both parts: values come from either of them, gradients go to either of
// them, and only the workers' part exchanges, commits and saves. Pservers close the step, because
// they have tables of the job (StepCommit).
//
// Thread safety: see dense_tables.h.
class MixedDenseTables : public DenseTables {
 public:
  struct Options {
    // By Model::dense_tables(): whether the workers keep the table.
    std::vector<bool> on_workers;
    // Pulls and pushes the tables that pservers keep. Its ValuesOf has a place for every table.
    std::unique_ptr<DenseTables> pservers;
    // Exchanges the gradients of the others. Its ValuesOf has those alone, in their order.
    std::unique_ptr<DenseTables> workers;
  };
  explicit MixedDenseTables(Options options);

  void AddToPull(StepBuffers* values, PullRequest* pull) const override;
  std::vector<const float*> ValuesOf(const StepBuffers& pulled) const override;
  void AddToPush(const StepBuffers* gradients, PushRequest* push) const override;

  bool leaves_early() const override { return workers_->leaves_early(); }
  void Ready(const StepBuffers& gradients, double weight, size_t i) override;
  void Send(uint64_t step, const StepBuffers* gradients, double weight) override;
  absl::Status Exchange(uint64_t step, const StepBuffers* gradients, double weight) override;
  absl::Status CloseStep(uint64_t steps) override { return workers_->CloseStep(steps); }

  absl::StatusOr<std::vector<SavedFile>> SaveModel(const std::string& directory,
                                                   const std::string& save_id) override;
  void SaveCheckpoint(uint64_t number, uint64_t step, Saved done) override;

  void Cancel() override { workers_->Cancel(); }
  std::string WaitingFor() const override { return workers_->WaitingFor(); }

 private:
  const std::vector<bool> on_workers_;
  const std::unique_ptr<DenseTables> pservers_, workers_;
};

// FAILED_PRECONDITION: the workers keep tables, and there is no engine. Errors of make_collective
// and CollectiveDenseTables::Create.
absl::StatusOr<JobDenseTables> MakeDenseTables(DenseTablesOptions options);

}  // namespace sluice
