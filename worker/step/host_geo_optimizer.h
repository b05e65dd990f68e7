// The GeoOptimizer in the worker's memory; common/optimizer updates it on the CPU.
//
// Every call returns OK, but for an update that makes a value of a dense table NaN or infinite.
//
// Memory: (2 x dim + state) floats per slot of each sparse table, and twice the dense tables plus
// their state.
//
// Thread safety: one thread.
#pragma once

#include <optional>
#include <vector>

#include "common/table/table_layout.h"
#include "model/net/geo_optimizer.h"

namespace sluice {

class HostGeoOptimizer : public GeoOptimizer {
 public:
  // Layouts outlive the values.
  HostGeoOptimizer(const std::vector<const TableLayout*>& dense,
                   const std::vector<const TableLayout*>& sparse);

  absl::Status SetDense(const std::vector<const float*>& values) override;
  absl::Status FillRows(size_t table, GeoSlots slots, const uint8_t* fresh,
                        const float* values) override;
  absl::Status Update(const GeoUpdate& update) override;
  absl::Status TakeDelta(const std::vector<GeoSlots>& rows, const GeoExchange& delta) override;
  absl::Status Merge(const std::vector<GeoSlots>& rows, const GeoExchange& sent,
                     const GeoExchange& server) override;

  absl::Status ReadRowState(size_t table, uint32_t first, size_t n, float* state) override;
  absl::Status WriteRowState(size_t table, uint32_t first, size_t n, const float* state) override;
  absl::Status ReadDenseState(size_t table, size_t first, size_t n, float* state) override;
  absl::Status WriteDenseState(size_t table, size_t first, size_t n, const float* state) override;

  struct BrokenRow {
    size_t table = 0;  // sparse table
    size_t index = 0;  // in the update's slots of the table
  };
  // The first row with a value that the last update has made NaN or infinite; absent: there is
  // none.
  const std::optional<BrokenRow>& broken_row() const { return broken_row_; }

  // Copies the local values of rows of a sparse table to [n][dim].
  void GatherRows(size_t table, GeoSlots slots, float* values) const;
  // The local values of dense table i, [elements].
  const float* dense(size_t i) const { return dense_[i].local.data(); }

 private:
  struct Dense {
    const TableLayout* layout = nullptr;
    std::vector<float> local, base, state;  // state: state_floats arrays of [elements]
  };
  struct Rows {
    const TableLayout* layout = nullptr;
    size_t dim = 0, stride = 0;
    // Bases are kept apart because a step does not read them.
    std::vector<float> values;  // [slots][local dim | state]
    std::vector<float> bases;   // [slots][dim]

    float* local(uint32_t slot) { return &values[slot * stride]; }
    float* state(uint32_t slot) { return &values[slot * stride + dim]; }
    float* base(uint32_t slot) { return &bases[slot * dim]; }
    void Reserve(size_t slots);
    void InitState(uint32_t slot);
    // False: a new value is NaN or infinite.
    bool Update(uint32_t slot, const float* gradient, const std::vector<float>& rates,
                uint64_t count);
  };
  static absl::Status NotFinite(const Dense& table);
  void UpdateRows(const GeoUpdate& update, size_t table);

  std::optional<BrokenRow> broken_row_;
  std::vector<Dense> dense_;
  std::vector<Rows> rows_;    // by sparse table
  std::vector<float> rates_;  // of a table's columns, during an update
};

}  // namespace sluice
