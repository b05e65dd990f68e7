#include "model/wide_deep/shape/net_input.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

absl::Status Mismatch(absl::string_view what, size_t given, size_t expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("wide_deep: the batch has ", given, " ", what, ", the network ", expected));
}

// Whether rows of a table are missing, in a batch with keys.
bool LacksRows(const NetInput& input, size_t table) {
  const RowsInput& rows = input.rows[table];
  // Several tables share the keys, so one of them may have none. A single table has them all.
  if (rows.n == 0 && input.rows.size() > 1) return false;
  // Resident rows are found by slot, all others lie in `values`.
  const bool resident = rows.resident != nullptr || input.geo != nullptr;
  return input.row_index == nullptr || (resident ? rows.slots == nullptr : rows.values == nullptr);
}

}  // namespace

absl::Status CheckShape(const WideDeepShape& shape) {
  // Written as a negation so that NaN is refused.
  if (!(shape.dropout >= 0 && shape.dropout < 1)) {
    return absl::InvalidArgumentError(absl::StrCat("wide_deep.dropout is ", shape.dropout,
                                                   "; it is a probability: 0 <= dropout < 1"));
  }
  if (shape.deep() && shape.deep_inputs() == 0) {
    return absl::InvalidArgumentError(
        "wide_deep: hidden_units need a feature in the deep part; set in_deep, or remove "
        "hidden_units");
  }
  return absl::OkStatus();
}

absl::Status CheckBatch(const WideDeepShape& shape, const Batch& batch) {
  if (batch.num_numeric != shape.num_numeric)
    return Mismatch("numbers", batch.num_numeric, shape.num_numeric);
  if (batch.num_slots != shape.slots.size())
    return Mismatch("slots", batch.num_slots, shape.slots.size());
  // Backends index key_offsets by example and slot without further checks.
  if (batch.key_offsets.size() != batch.n * batch.num_slots + 1) {
    return Mismatch("key offsets", batch.key_offsets.size(), batch.n * batch.num_slots + 1);
  }
  if (!batch.key_weights.empty() && batch.key_weights.size() != batch.keys.size())
    return Mismatch("weights of keys", batch.key_weights.size(), batch.keys.size());
  return absl::OkStatus();
}

absl::Status CheckInput(const WideDeepShape& shape, const std::vector<size_t>& elements,
                        const NetInput& input) {
  const Batch& batch = *input.batch;
  SLUICE_RETURN_IF_ERROR(CheckBatch(shape, batch));
  // In Geo, values and gradients stay in `geo`, so the caller gives no dense tensors.
  if (input.geo == nullptr && input.dense.size() != elements.size())
    return Mismatch("dense tensors", input.dense.size(), elements.size());
  if (input.rows.size() != shape.tables())
    return Mismatch("sparse tables", input.rows.size(), shape.tables());
  for (size_t t = 0; t < shape.tables() && !batch.keys.empty(); ++t) {
    if (shape.row_dim(t) > 0 && LacksRows(input, t)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "wide_deep: the batch has keys, but no rows of sparse table ", t, " were given"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTrainStep(const WideDeepShape& shape, const std::vector<size_t>& elements,
                            const NetInput& input, bool dropout, const NetGradients& gradients) {
  SLUICE_RETURN_IF_ERROR(CheckInput(shape, elements, input));
  if (input.geo == nullptr && gradients.dense.size() != elements.size()) {
    return Mismatch("dense gradients", gradients.dense.size(), elements.size());
  }
  if (input.geo == nullptr && gradients.rows.size() != shape.tables())
    return Mismatch("gradients of rows", gradients.rows.size(), shape.tables());
  // Dropout masks depend on the ids, so that they are the same however a batch is split.
  if (dropout && input.batch->example_id.size() != input.batch->n) {
    return Mismatch("example ids", input.batch->example_id.size(), input.batch->n);
  }
  return absl::OkStatus();
}

void SetToZero(const WideDeepShape& shape, const std::vector<size_t>& elements,
               const NetInput& input, NetGradients* gradients) {
  for (size_t t = 0; t < elements.size(); ++t) std::fill_n(gradients->dense[t], elements[t], 0.0f);
  for (size_t t = 0; t < shape.tables(); ++t) {
    const size_t values = input.rows[t].n * shape.row_dim(t);
    if (values > 0) std::fill_n(gradients->rows[t], values, 0.0f);
  }
}

}  // namespace sluice
