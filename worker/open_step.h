// The step of the dense tables of this rank that is open: their values after the steps that have
// closed, and the gradients with which the next one closes.
//
// Memory: that of the replica, and of the exchange.
//
// Thread safety: one thread, between steps or while no thread of the network brings gradients.
// Otherwise closed() and has_means() may be read on any thread, and the exchange has its own rules.
#pragma once

#include <cstdint>
#include <optional>

#include "common/collective/collective.h"
#include "worker/dense_replica.h"
#include "worker/gradient_exchange.h"

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

  // Global steps that have closed: the open one has this number, counted from 0.
  uint64_t closed() const { return replica_.closed(); }
  // The exchange has the mean gradients of the open step.
  bool has_means() const { return means_of_ == closed(); }
  // The exchange has those of step `step` from now on.
  void SetMeansOf(uint64_t step) { means_of_ = step; }
  void DropMeans() { means_of_.reset(); }

  // So many steps have closed: makes the update of the open one, if it is among them and its means
  // are here.
  void Close(uint64_t steps);

 private:
  DenseReplica replica_;
  GradientExchange exchange_;
  std::optional<uint64_t> means_of_;  // the step whose means the exchange has
};

}  // namespace sluice
