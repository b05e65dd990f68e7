// GeoOptimizer on a device: steps read parameters there, the optimizer runs there on the gradients
// that they leave; pulled rows go up, deltas come down, the server's values go up.
//
// Memory on the device: twice the dense tables and their state, 2 x dim + state floats a slot, and
// what an exchange holds; room for slots grows by up to half.
//
// Thread safety: one thread.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/table/table_layout.h"
#include "model/net/cuda/table_device.h"
#include "model/net/geo_optimizer.h"
#include "model/wide_deep/cuda/step_layout.h"

namespace sluice::cuda {

class DeviceGeoOptimizer : public GeoOptimizer {
 public:
  // Layouts outlive the values; `sparse` may be null. `gradients`, which outlive them too, are what
  // the network's last step left. As DenseNet::MakeGeoOptimizer.
  static absl::StatusOr<std::unique_ptr<GeoOptimizer>> Create(
      const NetPlan& plan, const std::vector<const TableLayout*>& dense, const TableLayout* sparse,
      double clip_global_norm, std::unique_ptr<TableDevice> device, DeviceGradients* gradients);

  absl::Status SetDense(const std::vector<const float*>& values) override;
  absl::Status FillRows(const uint32_t* slots, const uint8_t* fresh, size_t n,
                        const float* values) override;
  // FAILED_PRECONDITION when the last step left no gradients for so many rows.
  absl::Status Update(const GeoUpdate& update) override;
  absl::Status TakeDelta(const uint32_t* slots, size_t n, const GeoExchange& delta) override;
  absl::Status Merge(const uint32_t* slots, size_t n, const GeoExchange& sent,
                     const GeoExchange& server) override;

  // What a step reads: [slots][dim], null before the first slot; tensors at InputLayout::dense.
  const float* rows() const { return reinterpret_cast<const float*>(row_local_->data()); }
  const char* dense() const { return dense_local_->data(); }
  size_t slots() const { return slots_; }

 private:
  // A dense tensor, or a column group of the rows.
  struct Group {
    const TableLayout::Column* column = nullptr;
    uint64_t dim = 0, clip_row = 0;
    size_t at = 0;        // dense: bytes, in dense_local_ and dense_base_
    size_t state_at = 0;  // dense: bytes, in dense_state_
    bool clips_rows() const { return column->rule->clip_row_norm() > 0 && clip_row > 0; }
    uint64_t clip_rows(uint64_t n) const {
      return clips_rows() ? (n * dim + clip_row - 1) / clip_row : 0;
    }
  };

  DeviceGeoOptimizer(const TableLayout* sparse, double clip, std::unique_ptr<TableDevice> device,
                     DeviceGradients* gradients)
      : sparse_(sparse),
        clip_global_norm_(clip),
        device_(std::move(device)),
        gradients_(*gradients) {}
  absl::Status Prepare(const NetPlan& plan, const std::vector<const TableLayout*>& dense);
  // The state of fresh dense tensors, and of a fresh row, goes up.
  absl::Status InitState();
  // Slots to reserve when `slots` are needed: half as many again as there are, while half of what
  // is left has room for them in all three blocks.
  size_t RoomFor(size_t slots) const;
  // DATA_LOSS, once and for all, when rows are gone.
  absl::Status ReserveSlots(size_t slots);
  absl::Status ReserveWork(size_t rows);
  void ClipGlobalNorm(TableOps* ops);
  void UpdateGroup(const Group& group, UpdateArgs args, TableOps* ops);
  void UpdateRows(const GeoUpdate& update, const uint32_t* slots,
                  const std::vector<const float*>& adam, TableOps* ops);
  void UpdateDense(const GeoUpdate& update, TableOps* ops);
  // Between the caller's tensors and a block of dense values.
  void PackDense(const std::vector<const float*>& values, char* to) const;
  void UnpackDense(const char* from, const std::vector<float*>& values) const;

  const TableLayout* const sparse_;
  const double clip_global_norm_;  // 0: none
  const std::unique_ptr<TableDevice> device_;
  DeviceGradients& gradients_;
  size_t dim_ = 0, state_dim_ = 0;
  std::vector<Group> dense_, columns_;
  size_t dense_bytes_ = 0;
  std::unique_ptr<TableBlock> dense_local_, dense_base_, dense_state_;
  size_t slots_ = 0;
  absl::Status lost_;  // OK: rows are what they should be
  std::unique_ptr<TableBlock> row_local_, row_base_, row_state_;  // [slots][dim or state_dim]
  std::unique_ptr<TableBlock> row_initial_;                       // [state_dim]
  std::unique_ptr<TableBlock> sent_;  // of the last TakeDelta: [dense block][rows]
  size_t sent_rows_ = 0;
  std::unique_ptr<TableBlock> work_;        // [global norm's factor][partial sums][scales of rows]
  size_t partials_at_ = 0, scales_at_ = 0;  // bytes
};

}  // namespace sluice::cuda
