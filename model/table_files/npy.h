// The header of a NumPy array in a file.
//
// Format: "\x93NUMPY", a version, the length of the header, and the header: a Python dictionary of
// descr, fortran_order and shape. The values follow, in C order.
//
// Source: NumPy, "numpy.lib.format".
//
// Thread safety: free functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "model/table_files/byte_stream.h"

namespace sluice {

struct NpyHeader {
  char kind = 0;          // i, u, f; S: bytes; U: UTF-32
  size_t item_bytes = 0;  // of one value
  std::vector<uint64_t> shape;
  std::string descr;  // "<f4"

  uint64_t rows() const { return shape.empty() ? 1 : shape[0]; }
  // Values of one row.
  uint64_t width() const;
};

// Reads the header, up to the first value. INVALID_ARGUMENT: it is no array, or damaged, or is of
// a kind that is not read (objects, another byte order, Fortran's order), with the way out.
absl::StatusOr<NpyHeader> ReadNpyHeader(ByteStream* stream);

// `descr`: the type, such as "<f4".
std::string EncodeNpyHeader(absl::string_view descr, absl::Span<const uint64_t> shape);

}  // namespace sluice
