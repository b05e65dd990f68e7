// The fixed facts of a table: its sizes, shards, blocks and columns.
//
// A layout is computed once, from a resolved TableConfig.
//
// Invariants: every dense block but the last has block_elements(). A block holds whole rows when a
// row fits in kMaxBlockBytes; otherwise blocks may cut rows, and clip_row_norm is refused. Shard s
// of a dense table is block s. Column::optimizer has its defaults filled in.
//
// Thread safety: immutable.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/hash.h"
#include "common/optimizer/update_rule.h"
#include "proto/config.pb.h"

namespace sluice {

inline constexpr uint64_t kMaxBlockBytes = 1 << 20;

class TableLayout {
 public:
  // A column group of a sparse row, or the whole of a dense table.
  struct Column {
    std::string name;
    uint32_t begin = 0;        // first weight within the row
    uint32_t dim = 0;          // weights
    uint32_t state_begin = 0;  // first state float within the row's state
    OptimizerConfig optimizer;
    Initializer initializer;
    std::shared_ptr<const UpdateRule> rule;
  };

  // INVALID_ARGUMENT says why no table can have this config (no dim, bad optimizer, ...). `config`
  // must be resolved.
  static absl::StatusOr<std::shared_ptr<const TableLayout>> Create(uint32_t id,
                                                                   const TableConfig& config,
                                                                   uint64_t seed);

  uint32_t id() const { return id_; }
  const std::string& name() const { return config_.name(); }
  bool sparse() const { return config_.kind() == TableConfig::SPARSE; }
  const TableConfig& config() const { return config_; }
  // Workers keep the table (TableConfig.COLLECTIVE), so it has no shards on pservers.
  bool on_workers() const { return config_.update_at() == TableConfig::COLLECTIVE; }
  // Shards on pservers.
  uint32_t num_shards() const { return on_workers() ? 0 : num_files_; }
  // Files of the table in a model or checkpoint: one for each shard, or for each block of a table
  // that workers keep.
  uint32_t num_files() const { return num_files_; }
  // Bytes of one value on the wire: 4, or 2 for BF16.
  uint32_t wire_bytes() const { return config_.wire_type() == TableConfig::BF16 ? 2 : 4; }

  // Dense tables: the elements of the tensor, of a row (the last dimension), of a full block, and
  // of block `shard`, which begins at element shard * block_elements().
  uint64_t elements() const { return elements_; }
  uint64_t row_elements() const { return row_elements_; }
  uint64_t block_elements() const { return block_elements_; }
  uint64_t ShardElements(uint32_t shard) const;

  // Sparse tables: the weights and state floats of a row. Dense tables: 0, and the state floats of
  // an element.
  uint32_t dim() const { return dim_; }
  uint32_t state_floats() const { return state_floats_; }
  uint32_t ShardOf(uint64_t key) const { return ShardOfKey(key, num_files_); }
  // A dense table has one column, with dim 0.
  const std::vector<Column>& columns() const { return columns_; }

  // Sparse tables: bytes of a pserver's memory that a row takes at most, with its header and its
  // share of the index (server/shards/row_store.h).
  uint64_t most_row_bytes() const;
  // Sparse tables: the rows that the table may have (max_rows, or max_gib / most_row_bytes()), and
  // those that `shard` may have. UINT64_MAX: any number.
  uint64_t row_limit() const { return row_limit_; }
  uint64_t RowLimitOf(uint32_t shard) const;
  // Sparse tables with admit: bytes of the sketch of one shard, a part of the shard's image.
  uint64_t sketch_bytes() const;

  // A number for hashes that differ from job to job and from table to table: the hash of the seed
  // and the table's name.
  uint64_t stream() const { return stream_; }
  // Initial values, a function of (seed, table name, key or index).
  void InitialRow(uint64_t key, float* weights) const;                     // [dim]
  // What a sparse key without a row reads as: zeros before its admission if the table wants it so
  // (AdmitConfig.before), else the initial values.
  void RowBeforeUpdates(uint64_t key, float* weights) const;
  void InitialElements(uint64_t first, uint64_t n, float* weights) const;  // dense, [n]

  // Bytes of weights and state.
  // REQUIRES: the table is dense.
  uint64_t ShardBytes(uint32_t shard) const;

 private:
  TableLayout() = default;
  absl::Status InitDense();
  absl::Status InitSparse();
  absl::Status InitRowLimit();
  static absl::Status FillColumn(const Initializer& initializer, const OptimizerConfig& optimizer,
                                 Column* column);
  uint32_t id_ = 0;
  uint64_t stream_ = 0;
  TableConfig config_;
  uint32_t num_files_ = 0;
  uint64_t elements_ = 0, row_elements_ = 0, block_elements_ = 0;
  uint32_t dim_ = 0, state_floats_ = 0;
  std::vector<Column> columns_;
  uint64_t row_limit_ = UINT64_MAX;
};

using TableLayouts = std::vector<std::shared_ptr<const TableLayout>>;

// The layouts of a job's resolved tables. The index is the table id. INVALID_ARGUMENT names the
// table whose config is refused or whose name is taken.
absl::StatusOr<TableLayouts> CreateTableLayouts(
    const google::protobuf::RepeatedPtrField<TableConfig>& tables, uint64_t seed);

}  // namespace sluice
