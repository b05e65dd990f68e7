// The data of a job whose program gives the batches itself (ProgramConfig.source).
//
// Thread safety: safe from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "worker/data/batch_source.h"
#include "worker/data/source_states.h"

namespace sluice {

class OwnData {
 public:
  virtual ~OwnData() = default;
  // Most batches that a rank trains in an epoch; 0: all that its source has.
  virtual uint64_t epoch_steps() const = 0;
  // Batches that the source of this rank has in an epoch; 0: it does not know.
  virtual absl::StatusOr<uint64_t> CountBatches(const JobContext& context) = 0;
  // The batches of the epoch from number `first` on. Their fills set neither task nor position.
  // Once *stopped is true, a Next that waits returns CANCELLED soon. `context` and `stopped`
  // outlive the result. One source is open at a time.
  virtual absl::StatusOr<std::unique_ptr<BatchSource>> Train(const JobContext& context,
                                                             uint32_t epoch, uint64_t first,
                                                             const std::atomic<bool>* stopped) = 0;
  // This rank's batches of an evaluation.
  virtual absl::StatusOr<std::unique_ptr<BatchSource>> Evaluate(const JobContext& context) = 0;
  // The states that the source keeps; null: none.
  virtual SourceStates* states() { return nullptr; }
};

}  // namespace sluice
