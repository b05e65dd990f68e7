// The rows of a table as export writes them: all, with their keys; or those that a vocabulary
// names, with their values.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "model/table_files/saved_rows.h"
#include "model/table_files/table_columns.h"
#include "model/table_files/vocabulary.h"

namespace sluice {

class NamedRows {
 public:
  // `vocabulary` has its index, and outlives this; null: all rows, without values.
  NamedRows(std::unique_ptr<SavedRows> rows, const Vocabulary* vocabulary)
      : rows_(std::move(rows)),
        vocabulary_(vocabulary),
        columns_(rows_->layout(), rows_->state_floats()) {}

  const TableColumns& columns() const { return columns_; }
  bool state() const { return rows_->state(); }
  const Vocabulary* vocabulary() const { return vocabulary_; }
  // All rows of the table, named or not.
  uint64_t table_rows() const { return rows_->rows(); }

  // Sets *block to the next rows, and *lines, with a vocabulary, to the lines of their values.
  // Returns false at the end.
  absl::StatusOr<bool> Next(RowBlock* block, std::vector<uint32_t>* lines);
  void Rewind() { rows_->Rewind(); }
  // The number of rows that Next gives, from the first to the last. Reads all with a vocabulary.
  absl::StatusOr<uint64_t> Count();

 private:
  const std::unique_ptr<SavedRows> rows_;
  const Vocabulary* const vocabulary_;
  const TableColumns columns_;
};

}  // namespace sluice
