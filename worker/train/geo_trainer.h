// Trains in Geo mode: runs the optimizer on local parameters, exchanges deltas every k steps.
//
// An exchange takes delta = local - base and sends it. The pserver adds scale x delta and answers
// with its values. The answer is merged k / 8 steps later (k < 8: at once): base = server, local =
// server + moves made since the send. At its end, Train sends the tail (fewer than k steps) and
// merges every answer. Rows that GeoParameters lacks are pulled one batch ahead, but not across a
// merge, which makes rows stale.
//
// For a checkpoint the rank stops after a send, merges its answer at once, writes the state of the
// local optimizer, and that of a program's source, to its file, and waits until the pservers have
// begun their cuts. The positions in the pservers' shards then say which data the rank has trained,
// and the local values are theirs.
//
// When the network computes on a device, the local values and the optimizer are there too
// (DenseNet::MakeGeoOptimizer).
//
// Age: as in GeoParameters, reported as HotRowUse. Dense values and rows are at most k + k / 8 - 1
// steps old. The exception is a row first updated between a send and its merge. It is not part of
// that exchange, and reaches 2 k + k / 8 - 1 steps before the next exchange refreshes it.
//
// Memory: buffers of exchanges and pulls are reused.
//
// Thread safety: one thread.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "worker/batches/pool.h"
#include "worker/data/source_states.h"
#include "worker/step/geo_parameters.h"
#include "worker/step/net_step.h"
#include "worker/train/trainer.h"

namespace sluice {

class GeoTrainer : public Trainer {
 public:
  explicit GeoTrainer(const JobContext& context);
  absl::Status Train(const EpochPlan& plan, BatchQueue* queue) override;
  absl::Status EndEpoch(uint32_t epoch) override { return context_.client->EndEpoch(epoch); }
  absl::Status Restore(const GeoRestore& restore) override;
  void AnswerCheckpoint() override;

 private:
  // A batch whose rows are looked up; the missing ones are being pulled.
  struct Found {
    BatchQueue::Item prepared;
    GeoParameters::Found rows;
    std::vector<std::vector<float>> values;  // of the missing rows by sparse table, [missing][dim]
    std::optional<ParameterClient::Ticket> pull;
  };
  // A delta under way, and the buffers that its answer fills.
  struct Sent {
    std::vector<KeySet> keys;  // by sparse table
    GeoParameters::Values delta, server;
    std::vector<BatchQueue::Item> tasks;  // batches that ended a task
    ParameterClient::Ticket answer = 0;
  };

  // The first call makes GeoParameters from the server's dense values.
  absl::Status StartOnce();
  // Takes the next batch of the queue and looks its rows up. With `wait` it waits for a batch; null
  // at the end. Without, null when no batch is ready.
  absl::StatusOr<std::shared_ptr<Found>> FindNext(BatchQueue* queue, bool wait);
  // Waits for the pulled rows and puts them in GeoParameters.
  absl::Status Arrive(Found* found);
  // Run forward, backward and, unless the step is skipped, the local optimizer, on values in the
  // worker's memory or on the device. *weight is n_w.
  absl::Status StepHere(const Found& found, uint32_t epoch, double* weight);
  absl::Status StepOnDevice(const Found& found, uint32_t epoch, double* weight);
  absl::Status TrainOne(const EpochPlan& plan, const Found& found);
  // Whether dense table i (by Model::dense_tables()) is a parameter that the program has frozen,
  // which every exchange leaves out.
  bool IsFrozenHere(size_t i) const;
  absl::Status Send();
  // Waits for the answer of the last Send and merges it, if there is one.
  absl::Status Merge(const EpochPlan& plan);
  // Sends and merges all that is unsent.
  absl::Status Flush(const EpochPlan& plan);
  // A checkpoint asks for this rank's part.
  bool Asked() const { return context_.cuts != nullptr && context_.cuts->asked() != 0; }
  // Makes this rank's part of the checkpoint and waits until it may continue training.
  // REQUIRES: nothing is unsent, and no rows are looked up.
  void Park();
  absl::StatusOr<SavedFile> SaveState(const WorkerCheckpoint& wanted) const;
  // Of the program that gives the data; null: none.
  SourceStates* source_states() const;

  const JobContext& context_;
  NetStep step_;
  std::unique_ptr<GeoParameters> parameters_;  // null before the first Train
  uint64_t steps_ = 0;                         // of this worker, in all epochs
  uint64_t unsent_steps_ = 0;
  double unsent_weight_ = 0;
  std::vector<BatchQueue::Item> unsent_;  // batches that end a task, since the last Send
  TrainPosition trained_;                 // task and epoch of the last batch trained; no sums
  Pool<Sent> sends_;
  std::shared_ptr<Sent> sent_;  // null: no answer is awaited
  Pool<Found> finds_;
  std::shared_ptr<Found> current_, next_;  // null: none
  std::vector<std::vector<float>> rows_;   // of a step, by sparse table
  absl::Status not_finite_;  // of the state that a checkpoint would have saved: the job must fail
};

}  // namespace sluice
