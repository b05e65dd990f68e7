// The GeoOptimizer in the worker's memory; common/optimizer updates it on the CPU.
//
// Every call returns OK, but for an update that makes a value of a dense table NaN or infinite.
//
// Memory: (2 x dim + state) floats per slot, and twice the dense tables plus their state.
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
  // `sparse` may be null. Layouts outlive the values.
  HostGeoOptimizer(std::vector<const TableLayout*> dense, const TableLayout* sparse);

  absl::Status SetDense(const std::vector<const float*>& values) override;
  absl::Status FillRows(const uint32_t* slots, const uint8_t* fresh, size_t n,
                        const float* values) override;
  absl::Status Update(const GeoUpdate& update) override;
  absl::Status TakeDelta(const uint32_t* slots, size_t n, const GeoExchange& delta) override;
  absl::Status Merge(const uint32_t* slots, size_t n, const GeoExchange& sent,
                     const GeoExchange& server) override;

  absl::Status ReadRowState(uint32_t first, size_t n, float* state) override;
  absl::Status WriteRowState(uint32_t first, size_t n, const float* state) override;
  absl::Status ReadDenseState(size_t table, size_t first, size_t n, float* state) override;
  absl::Status WriteDenseState(size_t table, size_t first, size_t n, const float* state) override;

  // The index in the last update's slots of the first row with a value that it has made NaN or
  // infinite; absent: there is none.
  const std::optional<size_t>& broken_row() const { return broken_row_; }

  // Copies the local values of rows to [n][dim].
  void GatherRows(const uint32_t* slots, size_t n, float* values) const;
  // The local values of dense table i, [elements].
  const float* dense(size_t i) const { return dense_[i].local.data(); }

 private:
  struct Dense {
    const TableLayout* layout = nullptr;
    std::vector<float> local, base, state;  // state: state_floats arrays of [elements]
  };
  static absl::Status NotFinite(const Dense& table);
  float* local_row(uint32_t slot) { return &values_[slot * stride_]; }
  float* state_row(uint32_t slot) { return &values_[slot * stride_ + dim_]; }
  float* base_row(uint32_t slot) { return &bases_[slot * dim_]; }
  void InitState(uint32_t slot);
  void ReserveSlots(size_t room);
  // False: a new value is NaN or infinite.
  bool UpdateRow(uint32_t slot, const float* gradient, const std::vector<float>& rates,
                 uint64_t count);

  std::optional<size_t> broken_row_;
  std::vector<Dense> dense_;
  const TableLayout* const sparse_;
  size_t dim_ = 0, stride_ = 0;
  // Bases are kept apart because a step does not read them.
  std::vector<float> values_;  // [slots][local dim | state]
  std::vector<float> bases_;   // [slots][dim]
};

}  // namespace sluice
