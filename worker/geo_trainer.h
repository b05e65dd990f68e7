// Geo mode: the whole optimizer runs here on local parameters; every exactly k steps deltas are
// exchanged.
//
// Steps of an exchange: take delta = local - base, send it, the pserver adds scale x delta and
// answers with its values, which become the base. The tail of an epoch (fewer than k steps) is
// flushed at its end. Where the network computes on a device, local values and the optimizer are
// there, too (DenseNet::MakeGeoValues). Thread safety: one thread.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "worker/geo_store.h"
#include "worker/net_step.h"
#include "worker/trainer.h"

namespace sluice {

class GeoTrainer : public Trainer {
 public:
  explicit GeoTrainer(const JobContext& context);
  absl::Status Train(const EpochPlan& plan, BatchQueue* queue) override;
  absl::Status EndEpoch(uint32_t epoch) override { return context_.client->EndEpoch(epoch); }

 private:
  struct Delta {
    KeySet keys;
    std::vector<float> rows;
    std::vector<std::vector<float>> dense;
  };
  // Makes the store, with the server's dense values.
  absl::Status StartOnce();
  absl::Status PullMissing(const KeySet& keys);
  // Forward, backward and, unless the step is skipped, the local optimizer; on values in this
  // memory, or on the device's. *weight is n_w.
  absl::Status StepHere(const PreparedBatch& prepared, uint32_t epoch, double* weight);
  absl::Status StepOnDevice(const PreparedBatch& prepared, uint32_t epoch, double* weight);
  absl::Status TrainOne(const EpochPlan& plan, const BatchQueue::Item& prepared);
  absl::Status Exchange(const EpochPlan& plan);

  const JobContext& context_;
  NetStep step_;
  std::unique_ptr<GeoStore> store_;  // null before the first Train
  uint64_t steps_ = 0;               // of this worker, in all epochs
  uint64_t unsent_steps_ = 0;
  double unsent_weight_ = 0;
  std::vector<BatchQueue::Item> unsent_;  // batches that end a task, since the last exchange
  GeoStore::Rows found_;                  // of this step's keys
  std::vector<float> missing_values_, rows_;
};

}  // namespace sluice
