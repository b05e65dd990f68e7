// Numbers the shards of all tables of a job consecutively: (table, shard) <-> flat shard.
//
// Thread safety: immutable.
#pragma once

#include <cstdint>
#include <vector>

#include "common/table/table_layout.h"

namespace sluice {

class ShardIndex {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  explicit ShardIndex(TableLayouts tables) : tables_(std::move(tables)) {
    for (const auto& table : tables_) {
      begin_.push_back(static_cast<uint32_t>(table_of_.size()));
      table_of_.resize(table_of_.size() + table->num_shards(), table->id());
    }
  }
  const TableLayouts& tables() const { return tables_; }
  uint32_t size() const { return static_cast<uint32_t>(table_of_.size()); }
  uint32_t begin(uint32_t table) const { return begin_[table]; }
  const TableLayout& table_of(uint32_t flat) const { return *tables_[table_of_[flat]]; }
  uint32_t shard_of(uint32_t flat) const { return flat - begin_[table_of_[flat]]; }
  // Returns kNone if there is no such table or shard.
  uint32_t Flat(uint32_t table, uint32_t shard) const {
    if (table >= tables_.size() || shard >= tables_[table]->num_shards()) return kNone;
    return begin_[table] + shard;
  }
  // Values of one wire row: a sparse row's weights, or one element of a dense block.
  uint32_t ValuesPerRow(uint32_t flat) const {
    const TableLayout& table = table_of(flat);
    return table.sparse() ? table.dim() : 1;
  }

 private:
  TableLayouts tables_;
  std::vector<uint32_t> begin_;     // by table
  std::vector<uint32_t> table_of_;  // by flat shard
};

}  // namespace sluice
