// Reads columns of Arrow's memory format as the cells of a job's columns.
//
// A column of the job is a column of the table, or a field of a struct, named `a.b`. Lists have
// several values; maps, and lists of structs of two fields, have values with weights. Types without
// a meaning as cells are refused by name (arrow_types.h).
//
// Safety: offsets and codes of batches are checked before they are used. Lengths of buffers are
// not: batches come from a library of this process.
//
// Memory: the cells of one block of rows.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/arrow/arrow_c_data.h"
#include "common/arrow/parquet.h"
#include "model/data/arrow_types.h"
#include "model/features/cell_column.h"

namespace sluice {

// Rows that stay as they are while their cells are read.
class ArrowBatch {
 public:
  // Takes over *array, a struct array.
  explicit ArrowBatch(ArrowOwner<ArrowArray> array) : array_(std::move(array)) {}
  size_t rows() const { return static_cast<size_t>(array_->length); }

 private:
  friend class ArrowColumns;
  struct Dictionary {
    uint64_t id = 0;  // 0: not read yet
    std::vector<std::string_view> text;
  };
  ArrowOwner<ArrowArray> array_;
  std::vector<Dictionary> dictionaries_;  // by column of the job
};

class ArrowColumns {
 public:
  // A column of the job: one of the batch; a text that all rows have; or nothing.
  struct Source {
    std::vector<size_t> steps;  // empty: not in the batch
    bool constant = false;
    std::string text;
  };
  // `schema` is that of the batches, as a struct; it is only read here. UNIMPLEMENTED names the
  // column whose type is not read.
  static absl::StatusOr<std::unique_ptr<ArrowColumns>> Create(const ArrowSchema& schema,
                                                              std::vector<Source> sources);
  ~ArrowColumns();

  // The cells of the rows [first, first + rows) of *batch, by column of the job. They are valid
  // until the next call, and as long as the batch. DATA_LOSS when the batch contradicts itself.
  absl::StatusOr<absl::Span<const CellColumn>> Read(ArrowBatch* batch, size_t first, size_t rows);

 private:
  class Column;
  ArrowColumns() = default;

  std::vector<std::unique_ptr<Column>> columns_;
  std::vector<CellColumn> cells_;
};

}  // namespace sluice
