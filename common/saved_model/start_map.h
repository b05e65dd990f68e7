// How a table begins with the values of a saved table of another form (TableConfig.start): which
// rows of a dense table, or which columns of a sparse one, continue, and where they are now.
//
// Values and optimizer state of what continues are copied as they are. Everything else has the
// initial values of its new place, and fresh optimizer state.
//
// Thread safety: immutable.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/table/table_layout.h"
#include "proto/config.pb.h"
#include "proto/model.pb.h"

namespace sluice {

class StartMap {
 public:
  // `table`, whose `start` names `saved`, need not be resolved. INVALID_ARGUMENT: the two differ in
  // more than rows and columns, a column has become narrower, or `start` does not fit them.
  static absl::StatusOr<std::shared_ptr<const StartMap>> Create(const TableConfig& saved,
                                                                const TableConfig& table);

  // Of a dense table: rows. Of a sparse one: columns of a row.
  struct Counts {
    uint64_t kept = 0, added = 0, dropped = 0;
  };
  const Counts& counts() const { return counts_; }

  // The layout of the saved table; each of its shards or blocks is a file.
  const std::shared_ptr<const TableLayout>& saved_layout() const { return saved_layout_; }

  // Dense. Calls run(offset, to, n) for each piece of the saved elements [first, first + count)
  // that continues: saved elements first + offset + i are elements to + i of the table, for i < n.
  template <typename Run>
  void ForEachRun(uint64_t first, uint64_t count, Run run) const;

  // Sparse. Makes the floats of the row of `key` from those of the saved row: weights and, with
  // `state`, optimizer state. from: unaligned, [dim + state floats] of saved_layout(); without
  // `state` only the weights are read. to: the same of `table`, the layout of this map's table.
  void ConvertRow(const TableLayout& table, uint64_t key, bool state, const char* from,
                  float* to) const;

 private:
  StartMap() = default;
  absl::Status MapRows(const TableConfig& saved, const TableConfig& table);
  absl::Status MapColumns(const TableLayout& table);

  Counts counts_;
  std::shared_ptr<const TableLayout> saved_layout_;
  uint64_t saved_width_ = 1, width_ = 1;  // dense: elements of a row along the first dimension
  std::vector<TableStart::Run> runs_;     // ascending by `from`

  // Floats [from, from + n) of a saved row are floats [to, to + n).
  struct Copy {
    uint32_t from, to, n;
  };
  std::vector<Copy> weights_, state_;  // of the state: from the row's first state float on
  std::vector<float> fresh_state_;     // [state_floats]
};

// The table of the model from which `table` takes its values: that of its start, else that of its
// name. Null: the model has none.
const TableConfig* StartOf(const Manifest& manifest, const TableConfig& table);

template <typename Run>
void StartMap::ForEachRun(uint64_t first, uint64_t count, Run run) const {
  const uint64_t end = first + count;
  const auto copy_rows = [&](uint64_t row, uint64_t rows, uint64_t to_row) {
    const uint64_t begin = std::max(first, row * saved_width_);
    const uint64_t stop = std::min(end, (row + rows) * saved_width_);
    run(begin - first, to_row * width_ + (begin - row * saved_width_), stop - begin);
  };
  auto at = std::upper_bound(
      runs_.begin(), runs_.end(), first / saved_width_,
      [](uint64_t row, const TableStart::Run& r) { return row < r.from() + r.count(); });
  for (; at != runs_.end() && at->from() * saved_width_ < end; ++at) {
    if (saved_width_ == width_) {
      copy_rows(at->from(), at->count(), at->to());
      continue;
    }
    // Rows that have become longer no longer follow each other.
    const uint64_t behind = std::min(at->from() + at->count(), (end - 1) / saved_width_ + 1);
    for (uint64_t row = std::max(at->from(), first / saved_width_); row < behind; ++row)
      copy_rows(row, 1, at->to() + (row - at->from()));
  }
}

}  // namespace sluice
