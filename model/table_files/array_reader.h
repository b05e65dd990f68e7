// Reads an array of NumPy value by value, front to back, and turns its numbers into those of a
// table.
//
// Errors name the array.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/table_files/byte_stream.h"
#include "model/table_files/npy.h"

namespace sluice {

class ArrayReader {
 public:
  // Reads the header. `place`: the array's name, for messages.
  static absl::StatusOr<ArrayReader> Open(const std::string& place,
                                          std::unique_ptr<ByteStream> stream);

  const NpyHeader& header() const { return header_; }
  const std::string& place() const { return place_; }
  bool is_integer() const { return header_.kind == 'i' || header_.kind == 'u'; }
  bool is_float() const { return header_.kind == 'f'; }
  bool is_text() const { return header_.kind == 'S' || header_.kind == 'U'; }

  // Reads rows of `width` values, rounded to float32: value j of row i goes to to[i * stride + j].
  // REQUIRES: is_float().
  absl::Status ReadFloats(size_t rows, size_t width, size_t stride, float* to);
  // Appends integers, negative ones in two's complement. INVALID_ARGUMENT: one does not fit.
  // REQUIRES: is_integer().
  absl::Status ReadIntegers(size_t n, std::vector<uint64_t>* to);
  absl::Status ReadIntegers(size_t n, std::vector<uint32_t>* to);
  // Appends texts in UTF-8. REQUIRES: is_text().
  absl::Status ReadTexts(size_t n, std::vector<std::string>* to);
  // INVALID_ARGUMENT: bytes follow the values that were read. Their checksum is unknown until the
  // end, so a damaged shape would go unnoticed.
  absl::Status CheckEnd();

 private:
  ArrayReader() = default;
  absl::Status ReadItems(size_t n);

  std::string place_;
  NpyHeader header_;
  std::unique_ptr<ByteStream> stream_;
  std::string bytes_;
};

}  // namespace sluice
