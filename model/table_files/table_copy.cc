#include "model/table_files/table_copy.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/base/status_macros.h"
#include "common/saved_model/manifest.h"
#include "common/saved_model/saved_model.h"
#include "common/saved_model/shard_file.h"
#include "model/table_files/record_rows.h"

namespace sluice {
namespace {

constexpr size_t kCopyBytes = 1 << 20;

// The initial values of a block, and of its state.
std::vector<std::shared_ptr<const float>> InitialArrays(const TableLayout& table, uint32_t shard,
                                                        uint32_t state_floats) {
  const uint64_t n = table.ShardElements(shard);
  std::vector<std::shared_ptr<std::vector<float>>> arrays;
  for (uint32_t i = 0; i <= state_floats; ++i)
    arrays.push_back(std::make_shared<std::vector<float>>(n));
  table.InitialElements(shard * table.block_elements(), n, arrays[0]->data());
  std::vector<float*> state;
  for (uint32_t i = 1; i <= state_floats; ++i) state.push_back(arrays[i]->data());
  if (state_floats > 0) table.columns()[0].rule->InitState(state.data(), n);
  std::vector<std::shared_ptr<const float>> values;
  for (const auto& array : arrays) values.emplace_back(array, array->data());
  return values;
}

}  // namespace

absl::StatusOr<TableCopy> TableCopy::Create(const ModelFolder& from, bool saved,
                                            const TableLayout& table, bool state, Env* env) {
  TableCopy copy(from, table, state, env);
  if (!saved) {
    if (state) copy.state_floats_ = table.state_floats();
    return copy;
  }
  SLUICE_ASSIGN_OR_RETURN(copy.files_, FilesOfTable(from.dir, from.manifest, table.config()));
  if (!state) return copy;
  SLUICE_ASSIGN_OR_RETURN(const auto reader,
                          ShardFileReader::Open(env, from.dir, table.config(), *copy.files_[0]));
  copy.state_floats_ = reader->header().state_floats();
  // In Geo the workers have the state, and the files none.
  if (copy.state_floats_ == 0 || copy.state_floats_ == table.state_floats()) return copy;
  return absl::DataLossError(absl::StrCat(reader->path(), " is damaged: it has ",
                                          copy.state_floats_, " floats of state, not ",
                                          table.state_floats()));
}

absl::StatusOr<CutState> TableCopy::StateOf(uint32_t shard) const {
  CutState state;
  if (!state_) return state;
  state.state_floats = state_floats_;
  state.facts.emplace();
  if (files_.empty()) return state;
  SLUICE_ASSIGN_OR_RETURN(const auto reader,
                          ShardFileReader::Open(env_, from_.dir, table_.config(), *files_[shard]));
  *state.facts = reader->header().facts();
  return state;
}

absl::Status TableCopy::Write(const std::string& dir, const std::string& save_id,
                              Manifest* manifest) const {
  const size_t shards = files_.empty() ? table_.num_files() : files_.size();
  for (uint32_t shard = 0; shard < shards; ++shard) {
    // A file of the same kind of save stays as it is.
    const bool same = !files_.empty() && state_ == from_.checkpoint();
    SLUICE_ASSIGN_OR_RETURN(*manifest->add_files(),
                            same ? CopySavedFile(from_.dir, *files_[shard], dir,
                                                 ShardFileName(table_.name(), shard, save_id), env_)
                                 : WriteShard(dir, save_id, shard));
  }
  return absl::OkStatus();
}

absl::StatusOr<SavedFile> CopySavedFile(const std::string& from_dir, const SavedFile& file,
                                        const std::string& to_dir, const std::string& name,
                                        Env* env) {
  const std::string path = absl::StrCat(from_dir, "/", file.name());
  SavedFile copy;
  copy.set_name(name);
  SLUICE_ASSIGN_OR_RETURN(const auto out, StartFileIn(to_dir, name, env));
  while (copy.bytes() < file.bytes()) {
    SLUICE_ASSIGN_OR_RETURN(const std::string piece,
                            env->ReadRange(path, copy.bytes(), kCopyBytes));
    if (piece.empty()) break;
    SLUICE_RETURN_IF_ERROR(out->Append(piece));
    copy.set_bytes(copy.bytes() + piece.size());
    copy.set_crc32c(ExtendCrc32c(copy.crc32c(), piece.data(), piece.size()));
  }
  if (copy.bytes() != file.bytes() || copy.crc32c() != file.crc32c()) {
    return absl::DataLossError(
        absl::StrCat(path, " is damaged: its checksum is wrong; use another copy of the model"));
  }
  SLUICE_RETURN_IF_ERROR(out->Finish());
  return copy;
}

absl::StatusOr<SavedFile> TableCopy::WriteShard(const std::string& dir, const std::string& save_id,
                                                uint32_t shard) const {
  std::string values;
  SLUICE_ASSIGN_OR_RETURN(const auto cut, CutOfShard(shard, &values));
  return WriteShardFile(dir, table_, shard, cut.get(), env_, save_id);
}

// `values` outlives the cut.
absl::StatusOr<std::unique_ptr<ShardCut>> TableCopy::CutOfShard(uint32_t shard,
                                                                std::string* values) const {
  SLUICE_ASSIGN_OR_RETURN(CutState state, StateOf(shard));
  if (files_.empty() && !table_.sparse()) {
    return CutOfElements(table_, shard, InitialArrays(table_, shard, state_floats_),
                         std::move(state));
  }
  if (!files_.empty()) {
    SLUICE_ASSIGN_OR_RETURN(
        const auto reader, ShardFileReader::Open(env_, from_.dir, table_.config(), *files_[shard]));
    ValueReader runs(reader.get(), 0, reader->runs());
    while (true) {
      SLUICE_ASSIGN_OR_RETURN(const std::string records, runs.Next(kCopyBytes));
      if (records.empty()) break;
      *values += records;
    }
  }
  if (table_.sparse()) {
    const size_t record_bytes = sizeof(uint64_t) + sizeof(float) * table_.dim();
    return CutOfRows(table_, shard, std::make_unique<RecordRows>(values, record_bytes),
                     std::move(state));
  }
  auto floats = std::make_shared<std::vector<float>>(values->size() / sizeof(float));
  std::memcpy(floats->data(), values->data(), values->size());
  if (floats->size() != table_.ShardElements(shard)) {
    return absl::DataLossError(absl::StrCat(from_.dir, ": block ", shard, " of table '",
                                            table_.name(), "' has ", floats->size(), " of ",
                                            table_.ShardElements(shard), " elements"));
  }
  return CutOfElements(table_, shard, {std::shared_ptr<const float>(floats, floats->data())},
                       std::move(state));
}

}  // namespace sluice
