// The rows of a file that another program has written, or sluice table export, for the import into
// a sparse table.
//
// A source gives its columns in the places of the table's columns. It checks widths and types;
// values are checked by its user.
//
// Errors name the file, the column or row, and the fix.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/env.h"
#include "model/table_files/table_columns.h"

namespace sluice {

// What tells a row of a source from others.
enum class RowName {
  kKey,      // a key of the table
  kInteger,  // an integer, a value of a feature
  kText,     // a text, a value of a feature
  kNumber,   // only its number, from 0: the row of an embedding with ids from 0 on
};

// Some rows, row by row in each vector.
struct SourceBlock {
  size_t rows = 0;
  std::vector<uint64_t> numbers;      // kKey, kInteger
  std::vector<std::string> texts;     // kText
  std::vector<std::string> features;  // where the file has such a column
  std::vector<float> floats;          // [rows][row_floats]; absent columns are not set
  std::vector<uint64_t> last_seen;    // with state
  std::vector<uint32_t> count;        // with state

  void Clear();
};

struct SourceOptions {
  const TableColumns* columns = nullptr;  // outlives the source
  bool state = false;                     // the file must have the state, and it is read
  // The column group whose values `weights` (or DeepRec's values, or the numbers of a text) are.
  // "": the only one with this width.
  std::string column;
  std::string name;  // of the EmbeddingVariable, in a file with several
  // Text: what the numbers behind a key are, in their order: names of column groups and "_N", N
  // numbers that are left out. Empty: the groups, or `column`.
  std::vector<std::string> text_columns;
  // Only what names the rows is read, and nothing else needs to be there. A line of a text, or an
  // integer of an .npy, is then a key of the table, or with names_are_values a value.
  bool names_only = false, names_are_values = false;
};

class TableSource {
 public:
  virtual ~TableSource() = default;

  // Opens a file by the ending of its name: .npz, .npy or .parquet; all else is text, and may be
  // several files: the parts of one table.
  static absl::StatusOr<std::unique_ptr<TableSource>> Open(const std::vector<std::string>& files,
                                                           const SourceOptions& options, Env* env);

  RowName row_name() const { return row_name_; }
  // Whether numbers are int64 in two's complement.
  bool signed_numbers() const { return signed_numbers_; }
  bool has_features() const { return has_features_; }
  // Whether the file has TableColumns::floats()[i].
  const std::vector<bool>& has() const { return has_; }
  // 0: not known before the end.
  uint64_t rows() const { return rows_; }
  // The columns of the file that are not read.
  const std::vector<std::string>& unused() const { return unused_; }

  // Returns false at the end.
  virtual absl::StatusOr<bool> Next(SourceBlock* block) = 0;
  // Where row `row` is, counted from 0: "rows.npz, row 17", "part-0:18".
  virtual std::string PlaceOf(uint64_t row) const = 0;

 protected:
  RowName row_name_ = RowName::kKey;
  bool signed_numbers_ = false, has_features_ = false;
  std::vector<bool> has_;
  uint64_t rows_ = 0;
  std::vector<std::string> unused_;
};

inline constexpr size_t kSourceRows = 16 << 10;  // of a block

// The index in `columns` of the group that has `weights` of this width. INVALID_ARGUMENT names the
// widths of both, and --column where several fit. `place`: "rows.npz: weights", for messages.
absl::StatusOr<size_t> ChooseGroup(const TableColumns& columns, const std::string& column,
                                   uint64_t width, const std::string& place);
// INVALID_ARGUMENT names the columns of state that the file lacks.
absl::Status CheckHasState(const std::string& file, const TableColumns& columns,
                           const std::vector<bool>& has, bool history);
absl::Status WrongWidth(const std::string& place, uint64_t width, const std::string& column,
                        uint64_t wanted);

// The kinds of files.
absl::StatusOr<std::unique_ptr<TableSource>> OpenNpzSource(const std::string& file,
                                                           const SourceOptions& options, Env* env);
absl::StatusOr<std::unique_ptr<TableSource>> OpenTextSource(const std::vector<std::string>& files,
                                                            const SourceOptions& options, Env* env);
absl::StatusOr<std::unique_ptr<TableSource>> OpenParquetSource(const std::string& file,
                                                               const SourceOptions& options,
                                                               Env* env);

}  // namespace sluice
