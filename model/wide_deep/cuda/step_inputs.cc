#include "model/wide_deep/cuda/step_inputs.h"

#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"
#include "model/wide_deep/cuda/one_table.h"
#include "model/wide_deep/shape/net_input.h"

namespace sluice::cuda {

absl::Status StepInputs::Reserve(size_t block, const InputLayout& layout) {
  // Both blocks have the size of the largest step so far, so that they can change places.
  up_bytes_ = std::max(up_bytes_, layout.up_end);
  bytes_ = std::max(bytes_, layout.total);
  return device_.Reserve(block, up_bytes_, bytes_);
}

absl::Status StepInputs::Reserve(const StepShape& shape) {
  return Reserve(current_, InputLayout(plan_, shape));
}

absl::Status StepInputs::Stage(size_t block, const NetInput& input, bool sort) {
  const StepShape shape = ShapeOf(*input.batch, RowsOf(input).n);
  const InputLayout layout(plan_, shape);
  SLUICE_RETURN_IF_ERROR(Reserve(block, layout));
  SLUICE_RETURN_IF_ERROR(
      device_.Upload(block, FillBatch(plan_, layout, input, threads_, device_.pinned(block))));
  return sort ? device_.Index(block, shape) : absl::OkStatus();
}

bool StepInputs::Staged(const NetInput& input) const {
  return staged_.batch != nullptr && staged_.batch.get() == input.batch &&
         staged_.row_index == input.row_index && OnlyTable(staged_.num_rows) == RowsOf(input).n;
}

absl::Status StepInputs::Begin(const NetInput& input, bool training) {
  ahead_ = training && Staged(input);
  if (training) staged_ = {};
  if (ahead_) {
    current_ = other();
    in_flight_ = false;  // the last step has ended; it read the block that is now the other one
    ++steps_ahead_;
    return absl::OkStatus();
  }
  // The other block may hold the memory that this one needs: free it and try again.
  const absl::Status status = Stage(current_, input, training);
  if (!absl::IsResourceExhausted(status) || !GiveBack()) return status;
  return Stage(current_, input, training);
}

absl::Status StepInputs::AddValues(const NetInput& input, const StepHeader& header) {
  const RowsInput rows = RowsOf(input);
  const InputLayout layout(plan_, ShapeOf(*input.batch, rows.n));
  char* const to = device_.pinned(current_);
  // Uploads are asynchronous: the dense tensors are on their way while the rows are being copied.
  SLUICE_RETURN_IF_ERROR(device_.Upload(current_, FillDense(plan_, layout, input, threads_, to)));
  NetInput rest = input;
  const size_t bytes = plan_.row_dim * rows.n * sizeof(float);
  const bool brings_rows = header.resident == nullptr && input.geo == nullptr && bytes > 0;
  if (brings_rows && device_.Reaches(rows.values, bytes)) {
    SLUICE_RETURN_IF_ERROR(device_.UploadFrom(current_, rows.values, layout.values, bytes));
    rest.rows[0].values = nullptr;
  }
  SLUICE_RETURN_IF_ERROR(
      device_.Upload(current_, FillValues(plan_, layout, rest, header, threads_, to)));
  return device_.HoldBack(current_);
}

void StepInputs::BringNext() {
  const ComingBatch next = std::exchange(announced_, {});
  if (alone_ || next.batch == nullptr || next.batch->n == 0) return;
  // Errors of the batch are reported when its step comes.
  RowsInput rows;
  rows.n = OnlyTable(next.num_rows);
  if (!CheckBatch(shape_, *next.batch).ok() || !CheckSize(*next.batch, rows.n).ok()) return;
  if (next.row_index == nullptr && !next.batch->keys.empty()) return;
  staged_ = {};
  // An earlier batch ahead may still be on its way to the block that is about to be overwritten.
  if (in_flight_ && !device_.Wait().ok()) return;
  in_flight_ = true;
  NetInput input;
  input.batch = next.batch.get();
  input.row_index = next.row_index;
  input.rows = {rows};
  const absl::Status status = Stage(other(), input, /*sort=*/true);
  if (status.ok()) staged_ = next;
  if (absl::IsResourceExhausted(status)) GiveBack();
}

bool StepInputs::GiveBack() {
  if (alone_) return false;
  alone_ = true;
  staged_ = {};
  (void)device_.Wait();  // the step reports the failure
  in_flight_ = false;
  device_.Release(other());
  return true;
}

}  // namespace sluice::cuda
