// The batches that a program gives, as a source of batches of the worker.
//
// Thread safety: as their interfaces.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "python/core/given_batch.h"
#include "python/core/source_exchange.h"
#include "worker/data/batch_source.h"
#include "worker/data/own_data.h"

namespace sluice {

class ProgramSource : public BatchSource {
 public:
  // Asks for the batches of `request` at the first Next. `context`, `exchange` and `stopped`, which
  // may be null, outlive it.
  ProgramSource(const JobContext& context, std::shared_ptr<const GivenFeatures> features,
                SourceExchange* exchange, SourceRequest request, const std::atomic<bool>* stopped);
  ~ProgramSource() override;
  absl::StatusOr<Fill> Next() override;
  uint64_t dropped() const override { return 0; }

 private:
  const JobContext& context_;
  const std::shared_ptr<const GivenFeatures> features_;
  SourceExchange& exchange_;
  const std::atomic<bool>* const stopped_;
  SourceRequest request_;  // number 0: not asked yet
};

class ProgramData : public OwnData {
 public:
  // `epoch_steps`: OwnData::epoch_steps. `exchange` and `states` outlive it.
  ProgramData(SourceExchange* exchange, SourceStates* states, uint64_t epoch_steps)
      : exchange_(*exchange), states_(states), epoch_steps_(epoch_steps) {}

  uint64_t epoch_steps() const override { return epoch_steps_; }
  absl::StatusOr<uint64_t> CountBatches(const JobContext& context) override;
  absl::StatusOr<std::unique_ptr<BatchSource>> Train(const JobContext& context, uint32_t epoch,
                                                     uint64_t first,
                                                     const std::atomic<bool>* stopped) override;
  absl::StatusOr<std::unique_ptr<BatchSource>> Evaluate(const JobContext& context) override;
  SourceStates* states() override { return states_; }

 private:
  absl::StatusOr<std::unique_ptr<BatchSource>> Open(const JobContext& context,
                                                    SourceRequest request,
                                                    const std::atomic<bool>* stopped);

  SourceExchange& exchange_;
  SourceStates* const states_;
  const uint64_t epoch_steps_;
};

}  // namespace sluice
