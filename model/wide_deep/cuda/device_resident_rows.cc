#include "model/wide_deep/cuda/device_resident_rows.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "model/wide_deep/cuda/device_geo_optimizer.h"
#include "model/wide_deep/cuda/one_table.h"

namespace sluice::cuda {

absl::Status CheckSlots(const uint32_t* slots, size_t n, size_t capacity) {
  const uint32_t* const bad =
      std::find_if(slots, slots + n, [capacity](uint32_t slot) { return slot >= capacity; });
  if (bad == slots + n) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat("slot ", *bad, " of row ", bad - slots,
                                            " does not exist: there are ", capacity,
                                            " slots on the device"));
}

absl::StatusOr<std::unique_ptr<ResidentRows>> DeviceResidentRows::Create(
    std::unique_ptr<TableDevice> device, size_t capacity, size_t dim) {
  std::unique_ptr<DeviceResidentRows> rows(
      new DeviceResidentRows(std::move(device), capacity, dim));
  rows->block_ = rows->device_->NewBlock("rows kept on the device");
  // Never empty, since a step recognises resident rows by an address that is not null.
  SLUICE_RETURN_IF_ERROR(
      rows->block_->Reserve(std::max<size_t>(capacity, 1) * dim * sizeof(float), /*keep=*/false));
  return rows;
}

absl::Status DeviceResidentRows::Write(const uint32_t* slots, size_t n, const float* values) {
  SLUICE_RETURN_IF_ERROR(CheckSlots(slots, n, capacity_));
  if (n == 0) return absl::OkStatus();
  Places places;
  const size_t slots_at = places.Take(n, sizeof(uint32_t));
  const size_t values_at = places.Take(n * dim_, sizeof(float));
  return device_->Run(
      places.end(),
      [&](char* to) {
        std::memcpy(to + slots_at, slots, n * sizeof(uint32_t));
        std::memcpy(to + values_at, values, n * dim_ * sizeof(float));
      },
      [&](const char* up, TableOps* ops) {
        FillArgs args;
        args.slots = reinterpret_cast<const uint32_t*>(up + slots_at);
        args.values = reinterpret_cast<const float*>(up + values_at);
        args.n = n, args.dim = dim_;
        args.local = reinterpret_cast<float*>(block_->data());
        ops->Fill(args);
      });
}

absl::StatusOr<OnDevice> ValuesOnDevice(const NetInput& input) {
  OnDevice values;
  const RowsInput rows = RowsOf(input);
  if (input.geo != nullptr) {
    const auto& geo = static_cast<const DeviceGeoOptimizer&>(*input.geo);
    values = {geo.rows(), geo.dense()};
    SLUICE_RETURN_IF_ERROR(CheckSlots(rows.slots, rows.n, geo.slots()));
  } else if (rows.resident != nullptr) {
    const auto& resident = static_cast<const DeviceResidentRows&>(*rows.resident);
    values.rows = resident.rows();
    SLUICE_RETURN_IF_ERROR(CheckSlots(rows.slots, rows.n, resident.capacity()));
  }
  return values;
}

}  // namespace sluice::cuda
