// The numbers of Geo's local training: dense tables, and rows of the sparse table in numbered
// slots, each with its base (the server's value at the last exchange) and optimizer state. Which
// key lies in which slot, and whether it is fresh, is the caller's matter (worker/geo_store.h).
//
// In the worker's memory: worker/host_geo_values.h. A network that computes on a device makes its
// own (DenseNet::MakeGeoValues), whose steps read parameters and leave gradients where they are.
// Shapes: n rows, dim weights a row. Slots are small numbers, no slot twice in a call. Thread
// safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"

namespace sluice {

// One update of the local optimizer.
struct GeoUpdate {
  const uint32_t* slots = nullptr;   // [n]
  const uint64_t* counts = nullptr;  // [n]: updates of the row, this one included
  size_t n = 0;
  uint64_t dense_count = 0;  // updates of the dense tables, this one included
  uint64_t schedule_step = 0;
  // Gradients, of values in the worker's memory only.
  const float* rows = nullptr;      // [n][dim]
  std::vector<const float*> dense;  // by table, [elements]
};

// Deltas, or the server's values.
struct GeoExchange {
  float* rows = nullptr;      // [n][dim]
  std::vector<float*> dense;  // by table, [elements]
};

class GeoValues {
 public:
  virtual ~GeoValues() = default;
  // Local values and bases of the dense tables, by table: [elements].
  virtual absl::Status SetDense(const std::vector<const float*>& values) = 0;
  // Row i of values, [n][dim], becomes local value and base of slots[i]; where fresh[i] its state
  // begins anew. A slot may be new: there is then room for all below it.
  virtual absl::Status FillRows(const uint32_t* slots, const uint8_t* fresh, size_t n,
                                const float* values) = 0;
  // Updates the rows and all dense tables: by the gradients given, or on a device by those of the
  // last TrainStep on these values, once.
  virtual absl::Status Update(const GeoUpdate& update) = 0;
  // local - base, of the rows and of the dense tables.
  virtual absl::Status TakeDelta(const uint32_t* slots, size_t n, const GeoExchange& delta) = 0;
  // base = server; local = server + moves made since TakeDelta, which gave `sent` for these slots.
  virtual absl::Status Merge(const uint32_t* slots, size_t n, const GeoExchange& sent,
                             const GeoExchange& server) = 0;
};

}  // namespace sluice
