// The optimizer of Geo's local training. It holds its values: dense tables, and rows of the sparse
// tables in numbered slots, by table.
//
// Each value has a base (the server's value at the last exchange) and optimizer state. The caller
// decides which key is in which slot, and whether it is fresh (worker/step/geo_rows.h).
// worker/step/host_geo_optimizer.h keeps values in the worker's memory. A network that computes on
// a device makes its own (DenseNet::MakeGeoOptimizer): its steps read the parameters and leave the
// gradients there.
//
// Invariants: a table has n rows of dim weights. Slots are small numbers, those of each table count
// from 0, and no slot of a table occurs twice in a call. `table` is an index in
// Model::sparse_tables() for rows, and in Model::dense_tables() for dense state.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"

namespace sluice {

// One update of the local optimizer.
struct GeoUpdate {
  struct Rows {
    const uint32_t* slots = nullptr;   // [n]
    const uint64_t* counts = nullptr;  // [n]: updates of the row, this one included
    size_t n = 0;
    const float* gradients = nullptr;  // [n][dim]; only for values in the worker's memory
  };
  std::vector<Rows> rows;    // by sparse table
  uint64_t dense_count = 0;  // updates of the dense tables, this one included
  uint64_t schedule_step = 0;
  // Gradients; only for values in the worker's memory.
  std::vector<const float*> dense;  // by table, [elements]
};

// Deltas or server values.
struct GeoExchange {
  std::vector<float*> rows;   // by sparse table, [n][dim]
  std::vector<float*> dense;  // by table, [elements]
};

// The slots of some rows of a table.
struct GeoSlots {
  const uint32_t* slots = nullptr;  // [n]
  size_t n = 0;
};

class GeoOptimizer {
 public:
  virtual ~GeoOptimizer() = default;
  // Sets local values and bases of the dense tables, by table: [elements].
  virtual absl::Status SetDense(const std::vector<const float*>& values) = 0;
  // Makes row i of values, [n][dim], the local value and base of slot i, and resets its optimizer
  // state if fresh[i]. A slot may be new; memory then grows to hold all slots below it too.
  virtual absl::Status FillRows(size_t table, GeoSlots slots, const uint8_t* fresh,
                                const float* values) = 0;
  // Updates the rows and all dense tables from the given gradients. On a device it uses the
  // gradients of the last TrainStep on these values, and only once.
  virtual absl::Status Update(const GeoUpdate& update) = 0;
  // Writes local - base of the rows and of the dense tables to `delta`.
  virtual absl::Status TakeDelta(const std::vector<GeoSlots>& rows, const GeoExchange& delta) = 0;
  // Sets base = server and local = server + moves made since TakeDelta, which returned `sent` for
  // these slots.
  virtual absl::Status Merge(const std::vector<GeoSlots>& rows, const GeoExchange& sent,
                             const GeoExchange& server) = 0;

  // Copy optimizer state, for checkpoints. Rows: of the slots first, first + 1, ..., [n][state
  // floats of the table]; slots that are written may be new. Dense: n floats of a table's [state
  // floats][elements] from `first` on.
  virtual absl::Status ReadRowState(size_t table, uint32_t first, size_t n, float* state) = 0;
  virtual absl::Status WriteRowState(size_t table, uint32_t first, size_t n,
                                     const float* state) = 0;
  virtual absl::Status ReadDenseState(size_t table, size_t first, size_t n, float* state) = 0;
  virtual absl::Status WriteDenseState(size_t table, size_t first, size_t n,
                                       const float* state) = 0;
};

}  // namespace sluice
