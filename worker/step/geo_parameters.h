// Geo's local parameters: the dense tables, the rows of each sparse table, and the optimizer.
//
// GeoRows tracks which rows this worker holds. GeoOptimizer holds the values of all tables, in the
// worker's memory or where the network computes.
//
// Format of the state in a checkpoint (little-endian):
//
//   state := u64 updates of the dense tables, u64 number of dense tables, dense*, rows
//   dense := u64 floats of its optimizer state, these f32 floats
//   rows  := the state of each sparse table (geo_rows.h), in the order of Model::sparse_tables();
//            two u64 zeros when there is none
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "client/key_set.h"
#include "common/table/table_layout.h"
#include "proto/scheduler.pb.h"
#include "worker/step/geo_rows.h"
#include "worker/step/geo_state_file.h"
#include "worker/step/host_geo_optimizer.h"

namespace sluice {

class GeoParameters {
 public:
  // Layouts are those of Model::dense_tables() and sparse_tables(), and outlive GeoParameters. At
  // most `max_rows` rows of each sparse table stay after an exchange (GeoRows). `values` holds the
  // values of these tables where the network computes; null: GeoParameters keeps them in the
  // worker's memory.
  GeoParameters(std::vector<const TableLayout*> dense,
                const std::vector<const TableLayout*>& sparse, uint64_t max_rows,
                std::unique_ptr<GeoOptimizer> values = nullptr);

  // Null when the values are in the worker's memory. A step then reads dense(i) and the rows that
  // Gather copies.
  const GeoOptimizer* device() const { return host_ == nullptr ? optimizer_.get() : nullptr; }

  // Sets the values of the dense tables, pulled before the first step: by table, [elements].
  absl::Status SetDense(const std::vector<const float*>& values) {
    return optimizer_->SetDense(values);
  }
  const float* dense(size_t i) const { return host_->dense(i); }

  // The rows of a batch, by sparse table; valid until the next Merge.
  using Found = std::vector<GeoRows::Found>;
  // Looks up the rows of `keys`, by sparse table. The pull of the missing rows must start right
  // after it.
  void Find(const std::vector<KeySet>& keys, Found* found) const;
  // Makes the pulled values [missing keys][dim] of sparse table `table` local and base.
  // RESOURCE_EXHAUSTED when the device has no room.
  absl::Status Fill(size_t table, Found* found, const float* values) {
    return rows_[table].Fill(&(*found)[table], values);
  }
  // Counts a step that uses these rows (all fresh), whether it updates them or not. Returns how old
  // the rows of all tables are; misses are the rows that were pulled for the step.
  HotRowUse Use(const Found& found);
  // Copies the local values of the rows of sparse table `table` (all fresh) to [rows][dim].
  void Gather(size_t table, const Found& found, float* values) const {
    host_->GatherRows(table, {found[table].slots.data(), found[table].slots.size()}, values);
  }

  // Makes one local update of the rows and of all dense tables. `schedule_step` is the worker's own
  // step, from 0. Gradients are by sparse table, [rows][dim], and by dense table; a device uses
  // those that its last step left there, and these are empty. OUT_OF_RANGE names a value that has
  // become NaN or infinite.
  absl::Status Update(const Found& found, const std::vector<const float*>& rows,
                      std::vector<const float*> dense, uint64_t schedule_step);

  // Deltas or the server's values, by table.
  struct Values {
    std::vector<std::vector<float>> rows;   // by sparse table, [keys][dim]
    std::vector<std::vector<float>> dense;  // by dense table, [elements]
  };
  // Takes local - base of everything updated since the last exchange: the keys of each sparse
  // table, grouped by shard, their rows, and all dense tables.
  absl::Status TakeDelta(std::vector<KeySet>* keys, Values* delta);
  // Merges the server's values for the rows and tables of the last TakeDelta, which returned
  // `sent`: base = server, local = server + moves made since TakeDelta. Rows neither sent nor moved
  // since become stale. Evicts the least recently used rows of each table beyond max_rows.
  absl::Status Merge(Values* sent, Values* server);

  // Write and read what a checkpoint keeps of the local optimizer: its state and update counts.
  // The values come from the pservers again, so restored rows are stale. Call RestoreState before
  // the first Find. DATA_LOSS when the file does not fit these tables.
  absl::Status SaveState(GeoStateWriter* to) const;
  absl::Status RestoreState(GeoStateReader* from);

  // Rows held of a sparse table.
  uint64_t rows(size_t table) const { return rows_[table].size(); }

 private:
  // Floats of optimizer state of dense table i, of all its elements.
  uint64_t DenseStateFloats(size_t i) const;
  absl::Status RestoreDense(GeoStateReader* from);
  // Names the first value of the row that is NaN or infinite.
  absl::Status NotFinite(const HostGeoOptimizer::BrokenRow& row, const Found& found) const;
  std::vector<GeoSlots> sent() const;

  const std::vector<const TableLayout*> dense_;
  std::unique_ptr<GeoOptimizer> optimizer_;
  HostGeoOptimizer* host_ = nullptr;  // optimizer_, if in the worker's memory
  std::vector<GeoRows> rows_;         // by sparse table; they use optimizer_
  uint64_t dense_count_ = 0;          // updates of the dense tables
  GeoUpdate update_;                  // scratch space of one call
};

}  // namespace sluice
