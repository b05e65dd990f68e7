// Rows of a shard in memory, as records: a key and what follows it.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "common/saved_model/shard_image.h"

namespace sluice {

class RecordRows : public ShardRows {
 public:
  // `records` outlives this.
  RecordRows(const std::string* records, size_t record_bytes)
      : records_(*records), record_bytes_(record_bytes) {}

  uint64_t size() const override { return records_.size() / record_bytes_; }
  uint64_t Key(uint64_t row) const {
    uint64_t key;
    std::memcpy(&key, records_.data() + row * record_bytes_, sizeof(key));
    return key;
  }
  absl::StatusOr<size_t> ReadKeys(uint64_t first, size_t n, uint64_t* keys,
                                  uint32_t* rows) override {
    for (size_t i = 0; i < n; ++i) {
      keys[i] = Key(first + i);
      rows[i] = static_cast<uint32_t>(first + i);
    }
    return n;
  }
  absl::Status ReadRecords(const uint32_t* rows, size_t n, size_t stride, char* to) override {
    for (size_t i = 0; i < n; ++i, to += stride) {
      std::memcpy(to, records_.data() + rows[i] * record_bytes_ + sizeof(uint64_t),
                  record_bytes_ - sizeof(uint64_t));
    }
    return absl::OkStatus();
  }

 private:
  const std::string& records_;
  const size_t record_bytes_;
};

}  // namespace sluice
