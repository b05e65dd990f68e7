// Makes rows for the Arrow C data interface, from vectors: columns without nulls.
//
// Thread safety: free functions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/arrow/parquet.h"

namespace sluice {

struct ArrowColumn {
  std::string name;
  std::string format;  // the type, as in ArrowSchema::format
  uint64_t length = 0;
  std::vector<const void*> buffers;  // after the bitmap of nulls
  std::shared_ptr<void> owner;       // of the buffers
  std::vector<ArrowColumn> children;
};

ArrowColumn ArrowNumbers(const std::string& name, std::vector<uint64_t> values);
ArrowColumn ArrowNumbers(const std::string& name, std::vector<uint32_t> values);
// A fixed-size list of float32; values is [rows][dim].
ArrowColumn ArrowLists(const std::string& name, uint32_t dim, std::vector<float> values);
// Text i is text[offsets[i], offsets[i + 1]). REQUIRES: offsets has rows + 1 entries.
ArrowColumn ArrowTexts(const std::string& name, std::vector<int32_t> offsets, std::string text);

// A struct of the columns.
ArrowOwner<ArrowSchema> ArrowSchemaOf(const std::vector<ArrowColumn>& columns);
ArrowOwner<ArrowArray> ArrowRowsOf(std::vector<ArrowColumn> columns, uint64_t rows);

}  // namespace sluice
