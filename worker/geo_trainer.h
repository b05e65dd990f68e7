// Geo mode: the whole optimizer runs here on local parameters; every exactly k steps deltas are
// exchanged.
//
// Steps of an exchange: take delta = local - base, send it; the pserver adds scale x delta and
// answers with its values; k / 8 steps later (k < 8: at once) the answer is merged: base = server,
// local = server + moves made since the send. The tail of Train (fewer than k steps) is sent, and
// every answer merged, at its end. Rows that the store lacks are pulled one batch ahead, but not
// across a merge: what is fresh is so until the next merge.
// Age (GeoStore's, reported as HotRowUse): dense values and rows are at most k + k / 8 - 1 steps
// old; a row first updated between a send and its merge stays out of that exchange and reaches
// 2 k + k / 8 - 1 steps before the next one refreshes it.
// Where the network computes on a device, local values and the optimizer are there, too
// (DenseNet::MakeGeoValues). Memory: buffers of exchanges and pulls are used again. Thread safety:
// one thread.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "worker/geo_store.h"
#include "worker/net_step.h"
#include "worker/pool.h"
#include "worker/trainer.h"

namespace sluice {

class GeoTrainer : public Trainer {
 public:
  explicit GeoTrainer(const JobContext& context);
  absl::Status Train(const EpochPlan& plan, BatchQueue* queue) override;
  absl::Status EndEpoch(uint32_t epoch) override { return context_.client->EndEpoch(epoch); }

 private:
  // A batch with its rows looked up; those missing are being pulled.
  struct Found {
    BatchQueue::Item prepared;
    GeoStore::Rows rows;
    std::vector<float> values;  // of rows.missing, [missing][dim]
    std::optional<ParameterClient::Ticket> pull;
  };
  struct Values {
    std::vector<float> rows;                // [keys][dim]
    std::vector<std::vector<float>> dense;  // by Model::dense_tables(), [elements]
  };
  // A delta on its way, and what the answer will hold.
  struct Sent {
    KeySet keys;
    Values delta, server;
    std::vector<BatchQueue::Item> tasks;  // batches that ended a task
    ParameterClient::Ticket answer = 0;
  };

  // Makes the store, with the server's dense values.
  absl::Status StartOnce();
  // The next batch of the queue, if it is there; with `wait`, as soon as it is. Null: none.
  absl::StatusOr<std::shared_ptr<Found>> FindNext(BatchQueue* queue, bool wait);
  absl::Status Arrive(Found* found);
  // Forward, backward and, unless the step is skipped, the local optimizer; on values in this
  // memory, or on the device's. *weight is n_w.
  absl::Status StepHere(const Found& found, uint32_t epoch, double* weight);
  absl::Status StepOnDevice(const Found& found, uint32_t epoch, double* weight);
  absl::Status TrainOne(const EpochPlan& plan, const Found& found);
  absl::Status Send();
  // Waits for the answer of what was sent, if anything was.
  absl::Status Merge(const EpochPlan& plan);

  const JobContext& context_;
  NetStep step_;
  std::unique_ptr<GeoStore> store_;  // null before the first Train
  uint64_t steps_ = 0;               // of this worker, in all epochs
  uint64_t unsent_steps_ = 0;
  double unsent_weight_ = 0;
  std::vector<BatchQueue::Item> unsent_;  // batches that end a task, since the last Send
  Pool<Sent> sends_;
  std::shared_ptr<Sent> sent_;  // null: no answer is awaited
  Pool<Found> finds_;
  std::shared_ptr<Found> current_, next_;  // null: none
  std::vector<float> rows_;
};

}  // namespace sluice
