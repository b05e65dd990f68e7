// The dense tables of a job as one rank sees them: where a step's values come from, and where its
// gradients go.
//
// Pservers keep the tables (PserverDenseTables), or in sync each worker does
// (CollectiveDenseTables). A job may have tables of both kinds (MixedDenseTables).
//
// Thread safety: one thread, but for Ready, Cancel and WaitingFor.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/requests.h"
#include "common/base/env.h"
#include "model/model.h"
#include "proto/pserver.pb.h"
#include "proto/scheduler.pb.h"
#include "worker/batches/prepared_batch.h"

namespace sluice {

// Whether pservers keep the table and no step changes it: a worker pulls it once and pushes
// nothing.
bool IsFrozenTable(const TableConfig& table);

class DenseTables {
 public:
  virtual ~DenseTables() = default;

  // Adds the tables to a pull into `values`, if the values come from pservers.
  virtual void AddToPull(StepBuffers* values, PullRequest* pull) const = 0;
  // The values for a step, by Model::dense_tables(). `pulled`: the buffers of its pull, which has
  // ended. They are valid until the step closes.
  virtual std::vector<const float*> ValuesOf(const StepBuffers& pulled) const = 0;
  // Adds the gradients to a push, if they go to pservers. Null: there are none.
  virtual void AddToPush(const StepBuffers* gradients, PushRequest* push) const = 0;

  // The rest is for sync. In each step: Ready for some tables, Send, Exchange, and CloseStep once
  // the step has closed (StepCommit).

  // Whether gradients can leave while others are still computed.
  virtual bool leaves_early() const { return false; }
  // Called on any thread when the gradient of table i (by Model::dense_tables()) is final, at most
  // once a step. `weight`: n_w. An error is returned by Exchange.
  virtual void Ready(const StepBuffers& gradients, double weight, size_t i) {
    (void)gradients, (void)weight, (void)i;
  }
  // To be called when all gradients of global step `step` (0-based) are final. Sends those that
  // have not left, and does not wait. Null: the rank has none, and `weight` is 0. An error is
  // returned by Exchange.
  virtual void Send(uint64_t step, const StepBuffers* gradients, double weight) {
    (void)step, (void)gradients, (void)weight;
  }
  // Returns when the gradients of that step are where they must be before the rank may commit it.
  // Sends what has not left, again if need be, so the arguments are those of Send.
  // INVALID_ARGUMENT: a gradient is not finite. UNAVAILABLE, DEADLINE_EXCEEDED: another rank is
  // lost or slow, or has left because training has ended before this step. CANCELLED: likewise, or
  // by Cancel.
  virtual absl::Status Exchange(uint64_t step, const StepBuffers* gradients, double weight) {
    (void)step, (void)gradients, (void)weight;
    return absl::OkStatus();
  }
  // To be called when `steps` global steps have closed. May be called again for the same steps.
  // OUT_OF_RANGE: the update has made a value NaN or infinite.
  virtual absl::Status CloseStep(uint64_t steps) {
    (void)steps;
    return absl::OkStatus();
  }

  // The files of the tables for a model, from rank 0; empty if pservers write them.
  virtual absl::StatusOr<std::vector<SavedFile>> SaveModel(const std::string& directory,
                                                           const std::string& save_id) {
    (void)directory, (void)save_id;
    return std::vector<SavedFile>();
  }
  // The same from any rank for checkpoint `number`, whose cut is made right after global step
  // `step` (from 1), the newest that has closed: calls `done` with the files, on this or another
  // thread, and does not wait for the disk. On any thread, as long as no step closes meanwhile.
  using Saved = std::function<void(const absl::StatusOr<std::vector<SavedFile>>& files)>;
  virtual void SaveCheckpoint(uint64_t number, uint64_t step, Saved done) {
    (void)number, (void)step;
    done(std::vector<SavedFile>());
  }

  // Makes every waiting call, now or later, return CANCELLED soon. Safe from any thread.
  virtual void Cancel() {}
  // Names what a blocked call waits for; "": none is blocked. Safe from any thread.
  virtual std::string WaitingFor() const { return ""; }
};

// Pservers keep the tables: values are pulled with each step, and gradients pushed. Those of frozen
// tables are pulled until they are there, and kept; their pushes have no values.
class PserverDenseTables : public DenseTables {
 public:
  // `model` outlives this.
  explicit PserverDenseTables(const Model* model);
  // For some of the tables: `indices` in Model::dense_tables(). ValuesOf still has a place for
  // each.
  PserverDenseTables(const Model* model, std::vector<size_t> indices)
      : model_(model), indices_(std::move(indices)), frozen_(model->dense_tables().size()) {}
  void AddToPull(StepBuffers* values, PullRequest* pull) const override;
  std::vector<const float*> ValuesOf(const StepBuffers& pulled) const override;
  void AddToPush(const StepBuffers* gradients, PushRequest* push) const override;

 private:
  const TableConfig& ConfigOf(size_t i) const {
    return model_->tables()[static_cast<size_t>(model_->dense_tables()[i])];
  }

  const Model* const model_;
  const std::vector<size_t> indices_;
  // The values of the frozen tables, in the order of Model::dense_tables(). Empty until the first
  // pull has ended.
  mutable std::vector<std::vector<float>> frozen_;
};

}  // namespace sluice
