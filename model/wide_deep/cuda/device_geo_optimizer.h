// GeoOptimizer on a device. Steps read the parameters there, and the optimizer runs there on the
// gradients that the steps leave. Pulled rows and the server's values are uploaded; deltas are
// downloaded.
//
// Memory: On the device, the dense tables twice and their state; 2 x dim + state floats for each
// slot; and the deltas of an exchange. Room for slots grows by up to half.
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
  // As DenseNet::MakeGeoOptimizer. `sparse` is null without a sparse table. `gradients` are those
  // that the network's last step left. Layouts and `gradients` must outlive the values.
  static absl::StatusOr<std::unique_ptr<GeoOptimizer>> Create(
      const NetPlan& plan, const std::vector<const TableLayout*>& dense, const TableLayout* sparse,
      double clip_global_norm, std::unique_ptr<TableDevice> device, DeviceGradients* gradients);

  absl::Status SetDense(const std::vector<const float*>& values) override;
  absl::Status FillRows(size_t table, GeoSlots slots, const uint8_t* fresh,
                        const float* values) override;
  // FAILED_PRECONDITION unless the last step left gradients for exactly as many rows.
  absl::Status Update(const GeoUpdate& update) override;
  absl::Status TakeDelta(const std::vector<GeoSlots>& rows, const GeoExchange& delta) override;
  absl::Status Merge(const std::vector<GeoSlots>& rows, const GeoExchange& sent,
                     const GeoExchange& server) override;
  absl::Status ReadRowState(size_t table, uint32_t first, size_t n, float* state) override;
  absl::Status WriteRowState(size_t table, uint32_t first, size_t n, const float* state) override;
  absl::Status ReadDenseState(size_t table, size_t first, size_t n, float* state) override;
  absl::Status WriteDenseState(size_t table, size_t first, size_t n, const float* state) override;

  // The values that a step reads. rows: [slots][dim], null before the first slot. dense: tensors at
  // the offsets InputLayout::dense.
  const float* rows() const { return reinterpret_cast<const float*>(row_local_->data()); }
  const char* dense() const { return dense_local_->data(); }
  size_t slots() const { return slots_; }

 private:
  // A dense tensor, or a column group of the rows.
  struct Group {
    const TableLayout::Column* column = nullptr;
    uint64_t dim = 0, clip_row = 0;
    size_t at = 0;        // dense: byte offset in dense_local_ and dense_base_
    size_t state_at = 0;  // dense: byte offset in dense_state_
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
  // Uploads the optimizer state of fresh dense tensors and of a fresh row.
  absl::Status InitState();
  // Slots to reserve when `slots` are needed: 1.5 times the current number if half of the free
  // memory has room for it in all three blocks, else fewer, but at least `slots`.
  size_t RoomFor(size_t slots) const;
  // DATA_LOSS, now and in every later call, if growing has lost the rows.
  absl::Status ReserveSlots(size_t slots);
  absl::Status ReserveWork(size_t rows);
  void ClipGlobalNorm(TableOps* ops);
  void UpdateGroup(const Group& group, UpdateArgs args, TableOps* ops);
  void UpdateRows(const GeoUpdate& update, const uint32_t* slots,
                  const std::vector<const float*>& of_count, TableOps* ops);
  void UpdateDense(const GeoUpdate& update, TableOps* ops);
  // Copy floats between the host and device memory.
  absl::Status Download(const float* from, size_t n, float* to);
  absl::Status Upload(const float* from, size_t n, float* to);
  // Copy between the caller's tensors and a block of dense values.
  void PackDense(const std::vector<const float*>& values, char* to) const;
  void UnpackDense(const char* from, const std::vector<float*>& values) const;

  const TableLayout* const sparse_;
  const double clip_global_norm_;  // 0: no clipping
  const std::unique_ptr<TableDevice> device_;
  DeviceGradients& gradients_;
  size_t dim_ = 0, state_dim_ = 0;
  std::vector<Group> dense_, columns_;
  size_t dense_bytes_ = 0;
  std::unique_ptr<TableBlock> dense_local_, dense_base_, dense_state_;
  size_t slots_ = 0;
  absl::Status lost_;                                             // not OK: the rows are lost
  std::unique_ptr<TableBlock> row_local_, row_base_, row_state_;  // [slots][dim or state_dim]
  std::unique_ptr<TableBlock> row_initial_;                       // [state_dim]
  std::unique_ptr<TableBlock> sent_;  // deltas of the last TakeDelta: [dense block][rows]
  size_t sent_rows_ = 0;
  std::unique_ptr<TableBlock> work_;        // [global norm's factor][partial sums][scales of rows]
  size_t partials_at_ = 0, scales_at_ = 0;  // byte offsets in work_
};

}  // namespace sluice::cuda
