// Dense tables of a job of which the workers keep some and the pservers the others
// (TableConfig.update_at).
//
// A step passes through both parts: values come from either of them, gradients go to either of
// them, and only the workers' part exchanges, commits and saves. Pservers close the step, because
// they have tables of the job (StepCommit).
//
// Thread safety: see dense_tables.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "worker/dense_tables.h"

namespace sluice {

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
  void CloseStep(uint64_t steps) override { workers_->CloseStep(steps); }

  absl::StatusOr<std::vector<SavedFile>> SaveModel(const std::string& directory,
                                                   const std::string& save_id) override;
  void SaveCheckpoint(uint64_t number, uint64_t step, Saved done) override;

  void Cancel() override { workers_->Cancel(); }
  std::string WaitingFor() const override { return workers_->WaitingFor(); }

 private:
  const std::vector<bool> on_workers_;
  const std::unique_ptr<DenseTables> pservers_, workers_;
};

}  // namespace sluice
