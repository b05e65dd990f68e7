// ResidentRows on a device: one block of slots that does not move. Also finds the values on the
// device that a step reads instead of bringing them.
//
// Memory: capacity x dim floats, all allocated by Create.
//
// Thread safety: one thread.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "model/net/cuda/table_device.h"
#include "model/net/dense_net.h"

namespace sluice::cuda {

class DeviceResidentRows : public ResidentRows {
 public:
  // dim: floats of a row.
  // REQUIRES: dim > 0.
  static absl::StatusOr<std::unique_ptr<ResidentRows>> Create(std::unique_ptr<TableDevice> device,
                                                              size_t capacity, size_t dim);
  size_t capacity() const override { return capacity_; }
  absl::Status Write(const uint32_t* slots, size_t n, const float* values) override;
  const float* rows() const { return reinterpret_cast<const float*>(block_->data()); }

 private:
  DeviceResidentRows(std::unique_ptr<TableDevice> device, size_t capacity, size_t dim)
      : capacity_(capacity), dim_(dim), device_(std::move(device)) {}
  const size_t capacity_, dim_;
  const std::unique_ptr<TableDevice> device_;
  std::unique_ptr<TableBlock> block_;
};

// Values that a step finds on the device; null: the step brings them.
struct OnDevice {
  const float* rows = nullptr;  // [slots][dim]
  const char* dense = nullptr;  // at InputLayout::dense
};
// OUT_OF_RANGE if a slot of the input does not exist.
// REQUIRES: the rows' `resident` is a DeviceResidentRows or null, and input.geo is a
// DeviceGeoOptimizer or null.
absl::StatusOr<OnDevice> ValuesOnDevice(const NetInput& input);

// OUT_OF_RANGE names the first of slots [n] that is not below `capacity`.
absl::Status CheckSlots(const uint32_t* slots, size_t n, size_t capacity);

}  // namespace sluice::cuda
