// Writes a table of a model or checkpoint into another one, shard by shard; or the initial values
// of a job's table.
//
// Memory: one shard's values where a model is made from a checkpoint or from initial values; else a
// few MiB.
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
#include "common/saved_model/shard_image.h"
#include "common/table/table_layout.h"
#include "model/table_files/model_folder.h"
#include "proto/model.pb.h"

namespace sluice {

// Copies a file of `from_dir`'s manifest under `name`. DATA_LOSS: it is not the file that was
// saved.
absl::StatusOr<SavedFile> CopySavedFile(const std::string& from_dir, const SavedFile& file,
                                        const std::string& to_dir, const std::string& name,
                                        Env* env);

class TableCopy {
 public:
  // `saved`: `from` is a folder; else it only has layouts, whose tables get initial values. With
  // `state` the copy belongs to a checkpoint. `from` and `table`, one of its layouts, outlive this.
  static absl::StatusOr<TableCopy> Create(const ModelFolder& from, bool saved,
                                          const TableLayout& table, bool state, Env* env);

  // Floats of state of a row or an element in the output.
  uint32_t state_floats() const { return state_floats_; }
  // What the file of this shard has beside its values.
  absl::StatusOr<CutState> StateOf(uint32_t shard) const;
  // Writes all shards to the save, and adds their files to the manifest.
  absl::Status Write(const std::string& dir, const std::string& save_id, Manifest* manifest) const;

 private:
  TableCopy(const ModelFolder& from, const TableLayout& table, bool state, Env* env)
      : from_(from), table_(table), state_(state), env_(env) {}
  absl::StatusOr<SavedFile> WriteShard(const std::string& dir, const std::string& save_id,
                                       uint32_t shard) const;
  absl::StatusOr<std::unique_ptr<ShardCut>> CutOfShard(uint32_t shard, std::string* values) const;

  const ModelFolder& from_;
  const TableLayout& table_;
  const bool state_;
  Env* const env_;
  uint32_t state_floats_ = 0;
  std::vector<const SavedFile*> files_;  // by shard; empty: initial values
};

}  // namespace sluice
