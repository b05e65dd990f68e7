// Types and rows of Arrow for copies of files.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstdint>
#include <memory>

#include "common/arrow/arrow_c_data.h"
#include "common/arrow/parquet.h"

namespace sluice {

// Without the schema's metadata.
ArrowOwner<ArrowSchema> CopyOfSchema(const ArrowSchema& schema);

using SharedRows = std::shared_ptr<ArrowOwner<ArrowArray>>;

// The rows [begin, begin + n) of a batch, whose memory the slice borrows. Columns begin within
// their memory, and not the batch, which readers do not expect.
ArrowOwner<ArrowArray> SliceOfRows(const SharedRows& rows, int64_t begin, int64_t n);

}  // namespace sluice
