// The rows of a shard of a delta, from a map.
#pragma once

#include <cstring>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/saved_model/delta_image.h"
#include "common/table/table_layout.h"

namespace sluice {

using ModelRows = std::map<uint64_t, std::vector<float>>;  // weights by key

// Those of `rows` that belong to the shard, and the keys that a delta names as gone.
class RowsOfMap : public DeltaRows {
 public:
  RowsOfMap(const TableLayout& table, uint32_t shard, const ModelRows& rows,
            const std::set<uint64_t>& gone) {
    for (const auto& [key, weights] : rows) {
      if (table.ShardOf(key) == shard) rows_.emplace_back(key, weights);
    }
    for (const uint64_t key : gone) {
      if (table.ShardOf(key) == shard) gone_.push_back(key);
    }
  }
  uint64_t size() const override { return rows_.size(); }
  absl::StatusOr<size_t> ReadKeys(uint64_t first, size_t n, uint64_t* keys,
                                  uint32_t* rows) override {
    for (size_t i = 0; i < n; ++i) {
      keys[i] = rows_[first + i].first;
      rows[i] = static_cast<uint32_t>(first + i);
    }
    return n;
  }
  absl::Status ListGone(std::vector<uint64_t>* keys) override {
    *keys = gone_;
    return absl::OkStatus();
  }
  absl::Status ReadRecords(const uint32_t* rows, size_t n, size_t stride, char* to) override {
    for (size_t i = 0; i < n; ++i)
      std::memcpy(to + i * stride, rows_[rows[i]].second.data(),
                  rows_[rows[i]].second.size() * sizeof(float));
    return absl::OkStatus();
  }

 private:
  std::vector<std::pair<uint64_t, std::vector<float>>> rows_;
  std::vector<uint64_t> gone_;
};

}  // namespace sluice
