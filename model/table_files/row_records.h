// The rows of a piece of a sparse shard's file.
//
// Thread safety: immutable.
#pragma once

#include <cstdint>
#include <cstring>

#include "absl/strings/string_view.h"
#include "common/saved_model/shard_file_reader.h"

namespace sluice {

class RowRecords {
 public:
  // `records` are whole ones of `file`, which is sparse. Both outlive this.
  RowRecords(const ShardFileReader& file, absl::string_view records)
      : records_(records),
        record_bytes_(file.record_bytes()),
        weights_offset_(file.weights_offset()),
        dim_(file.header().dim()) {}

  size_t size() const { return records_.size() / record_bytes_; }
  absl::string_view record(size_t i) const {
    return records_.substr(i * record_bytes_, record_bytes_);
  }
  uint64_t key(size_t i) const { return Load<uint64_t>(i, 0); }
  // REQUIRES: the file is of a checkpoint.
  uint64_t last_seen(size_t i) const { return Load<uint64_t>(i, sizeof(uint64_t)); }
  uint32_t count(size_t i) const { return Load<uint32_t>(i, 2 * sizeof(uint64_t)); }
  // The square of the Euclidean norm of the weights.
  double SquaredNorm(size_t i) const {
    double sum = 0;
    const char* from = records_.data() + i * record_bytes_ + weights_offset_;
    for (uint32_t k = 0; k < dim_; ++k, from += sizeof(float)) {
      float weight;
      std::memcpy(&weight, from, sizeof(weight));
      sum += double{weight} * weight;
    }
    return sum;
  }

 private:
  template <typename T>
  T Load(size_t i, size_t offset) const {
    T value;
    std::memcpy(&value, records_.data() + i * record_bytes_ + offset, sizeof(value));
    return value;
  }

  const absl::string_view records_;
  const size_t record_bytes_, weights_offset_;
  const uint32_t dim_;
};

}  // namespace sluice
