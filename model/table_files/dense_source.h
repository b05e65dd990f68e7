// The values of a dense table in a file: an .npz with `weights` and state_NAME in the table's
// shape, or an .npy with the weights.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "common/table/table_layout.h"
#include "model/table_files/array_reader.h"
#include "model/table_files/zip_reader.h"

namespace sluice {

class DenseSource {
 public:
  // INVALID_ARGUMENT names an array that is missing or has another shape. `state_floats`: arrays of
  // state that are wanted.
  static absl::StatusOr<std::unique_ptr<DenseSource>> Open(const std::string& file,
                                                           const TableLayout& table,
                                                           uint32_t state_floats, Env* env);

  const std::vector<std::string>& unused() const { return unused_; }
  // The next n elements of each array: the weights, then the state. INVALID_ARGUMENT names an
  // element that is NaN or infinite.
  absl::StatusOr<std::vector<std::shared_ptr<const float>>> Next(uint64_t n);
  // After the last element. INVALID_ARGUMENT: more follows.
  absl::Status CheckEnd();

 private:
  std::unique_ptr<ZipReader> zip_;
  std::vector<ArrayReader> arrays_;
  std::vector<std::string> unused_;
  uint64_t done_ = 0;
};

}  // namespace sluice
