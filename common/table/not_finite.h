// Says which value of a table is NaN or infinite, in the error that fails the job.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "common/optimizer/kernels.h"
#include "common/table/table_layout.h"

namespace sluice {

// The index of the first value that is NaN or infinite; n: there is none.
size_t FirstNotFinite(const UnalignedFloat* values, size_t n);

// OUT_OF_RANGE names the table and the key. `value`: the index of the bad value in the row, whose
// state follows its weights.
absl::Status RowNotFinite(const TableLayout& table, uint64_t key, size_t value);

// OUT_OF_RANGE names the table, the element and its block. `array`: 0: a weight, else a float of
// its state.
absl::Status ElementNotFinite(const TableLayout& table, uint64_t element, size_t array);

}  // namespace sluice
