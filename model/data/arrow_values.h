// The values of one array of Arrow's memory format as cells, without lists and nulls.
//
// Safety: offsets of texts are checked. Lengths of buffers are not: arrays come from a library of
// this process.
//
// Memory: the values of the last call that are not used where they are.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "common/arrow/arrow_c_data.h"
#include "model/data/arrow_types.h"
#include "model/features/cell_column.h"

namespace sluice {

template <typename T>
const T* ArrowBuffer(const ArrowArray& array, int64_t i) {
  return static_cast<const T*>(array.buffers[i]);
}

// Marks in absent[n] the values [first, first + n) that are null. False: none is, and nothing has
// changed. `first` counts from the beginning of the buffers.
bool MarkArrowNulls(const ArrowArray& array, size_t first, size_t n, std::vector<uint8_t>* absent);

// DATA_LOSS: an array contradicts itself.
absl::Status ArrowContradiction(const char* what);

class ArrowValues {
 public:
  explicit ArrowValues(const ArrowValueType& type) : type_(type) {}

  // The values [first, first + n) without the array's dictionary. `first` counts from the beginning
  // of the buffers, the array's own offset included. *cells is valid until the next call.
  absl::Status Read(const ArrowArray& array, size_t first, size_t n, CellColumn* cells);

 private:
  template <typename T>
  absl::Status Integers(const ArrowArray& array, size_t first, size_t n, CellColumn* cells);
  template <typename Offset>
  absl::Status Texts(const ArrowArray& array, size_t first, size_t n, CellColumn* cells);
  absl::Status TextViews(const ArrowArray& array, size_t first, size_t n, CellColumn* cells);
  absl::Status Decimals(const ArrowArray& array, size_t first, size_t n, CellColumn* cells);
  absl::Status Instants(CellColumn* cells) const;
  absl::Status Doubles(CellColumn* cells) const;
  absl::Status SetTexts(CellColumn* cells) const;

  const ArrowValueType type_;
  std::vector<int64_t> integers_;
  std::vector<uint64_t> unsigned_;
  std::vector<double> doubles_;
  std::vector<std::string_view> texts_;
  std::string decimals_;
  std::vector<size_t> ends_;  // of decimals_
};

}  // namespace sluice
