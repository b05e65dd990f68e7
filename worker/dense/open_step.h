// The open step of a rank's dense tables: the values so far, and the gradients for the next update.
//
// Memory: that of the replica and the exchange.
//
// Thread safety: one thread, while no other thread puts gradients. While one does, only closed()
// and has_means() may be read; the exchange has its own rules.
#pragma once

#include <cstdint>
#include <optional>

#include "common/collective/collective.h"
#include "worker/dense/dense_replica.h"
#include "worker/dense/gradient_exchange.h"

namespace sluice {

class OpenStep {
 public:
  // See GradientExchange.
  OpenStep(const TableLayouts& tables, Collective* collective, uint64_t max_bytes,
           size_t max_tables)
      : replica_(tables), exchange_(tables, collective, max_bytes, max_tables) {}

  DenseReplica& replica() { return replica_; }
  const DenseReplica& replica() const { return replica_; }
  GradientExchange& exchange() { return exchange_; }

  // The number of global steps that have closed, which is also the number of the open step (from
  // 0).
  uint64_t closed() const { return replica_.closed(); }
  // The exchange has the mean gradients of the open step.
  bool has_means() const { return means_of_ == closed(); }
  // Notes that the exchange now has the mean gradients of step `step`.
  void SetMeansOf(uint64_t step) { means_of_ = step; }
  void DropMeans() { means_of_.reset(); }

  // To be called when `steps` global steps have closed. Updates the tables if the open step is
  // among them and its means are here.
  void Close(uint64_t steps);

 private:
  DenseReplica replica_;
  GradientExchange exchange_;
  std::optional<uint64_t> means_of_;  // the step whose means the exchange has
};

}  // namespace sluice
