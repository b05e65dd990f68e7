// GeoValues in the worker's memory: the optimizer of common/optimizer on the CPU.
//
// Memory: (2 x dim + state) floats a slot, twice the dense tables and their state. Every call
// returns OK. Thread safety: one thread.
#pragma once

#include <vector>

#include "common/table/table_layout.h"
#include "model/net/geo_values.h"

namespace sluice {

class HostGeoValues : public GeoValues {
 public:
  // `sparse` may be null. Layouts outlive the values.
  HostGeoValues(std::vector<const TableLayout*> dense, const TableLayout* sparse);

  absl::Status SetDense(const std::vector<const float*>& values) override;
  absl::Status FillRows(const uint32_t* slots, const uint8_t* fresh, size_t n,
                        const float* values) override;
  absl::Status Update(const GeoUpdate& update) override;
  absl::Status TakeDelta(const uint32_t* slots, size_t n, const GeoExchange& delta) override;
  absl::Status Merge(const uint32_t* slots, size_t n, const GeoExchange& sent,
                     const GeoExchange& server) override;

  // Local values: of rows to [n][dim]; of dense table i, [elements].
  void GatherRows(const uint32_t* slots, size_t n, float* values) const;
  const float* dense(size_t i) const { return dense_[i].local.data(); }

 private:
  struct Dense {
    const TableLayout* layout = nullptr;
    std::vector<float> local, base, state;  // state: state_floats arrays of [elements]
  };
  float* local_row(uint32_t slot) { return &values_[slot * stride_]; }
  float* state_row(uint32_t slot) { return &values_[slot * stride_ + dim_]; }
  float* base_row(uint32_t slot) { return &bases_[slot * dim_]; }
  void InitState(uint32_t slot);
  void UpdateRow(uint32_t slot, const float* gradient, const std::vector<float>& rates,
                 uint64_t count);

  std::vector<Dense> dense_;
  const TableLayout* const sparse_;
  size_t dim_ = 0, stride_ = 0;
  // Apart, because a step needs no base.
  std::vector<float> values_;  // [slots][local dim | state]
  std::vector<float> bases_;   // [slots][dim]
};

}  // namespace sluice
