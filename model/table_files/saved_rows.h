// Reads the rows of a sparse table of a saved model or checkpoint, in the order of its files.
//
// Memory: a few MiB.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "common/saved_model/shard_file_reader.h"
#include "common/table/table_layout.h"
#include "proto/model.pb.h"

namespace sluice {

// Some rows, row by row in each vector.
struct RowBlock {
  std::vector<uint64_t> keys;
  std::vector<float> floats;        // [rows][TableColumns::row_floats()]
  std::vector<uint64_t> last_seen;  // with state
  std::vector<uint32_t> count;      // with state

  size_t size() const { return keys.size(); }
  void Clear();
};

class SavedRows {
 public:
  // Reads the headers of the table's files. With `state`, FAILED_PRECONDITION when the folder is a
  // model, which has none. `layout` is that of the manifest, and must outlive this.
  static absl::StatusOr<std::unique_ptr<SavedRows>> Open(const std::string& dir,
                                                         const Manifest& manifest,
                                                         const TableLayout* layout, bool state,
                                                         Env* env);

  const TableLayout& layout() const { return layout_; }
  bool state() const { return state_; }
  // Floats of state of a row; 0 without `state`.
  uint32_t state_floats() const { return state_floats_; }
  uint64_t rows() const { return rows_; }

  // Sets *block to the next rows, about 32,768 of them. Returns false at the end.
  absl::StatusOr<bool> Next(RowBlock* block);
  // Begins again with the first row.
  void Rewind();

 private:
  SavedRows(const TableLayout* layout, bool state) : layout_(*layout), state_(state) {}
  void Append(const std::string& records, RowBlock* block) const;

  const TableLayout& layout_;
  const bool state_;
  uint32_t state_floats_ = 0;
  uint64_t rows_ = 0;
  std::vector<std::unique_ptr<ShardFileReader>> files_;
  size_t file_ = 0;
  std::unique_ptr<RunReader> runs_;  // of files_[file_]
};

}  // namespace sluice
