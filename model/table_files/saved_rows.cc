#include "model/table_files/saved_rows.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/saved_model/manifest.h"
#include "common/saved_model/shard_image.h"

namespace sluice {
namespace {

constexpr size_t kBlockRows = 32 << 10;
constexpr size_t kMostReadBytes = 1 << 20;

}  // namespace

void RowBlock::Clear() {
  keys.clear();
  floats.clear();
  last_seen.clear();
  count.clear();
}

absl::StatusOr<std::unique_ptr<SavedRows>> SavedRows::Open(const std::string& dir,
                                                           const Manifest& manifest,
                                                           const TableLayout* layout, bool state,
                                                           Env* env) {
  if (state && !manifest.has_checkpoint()) {
    return absl::FailedPreconditionError(
        absl::StrCat(dir,
                     " is a model, which has no optimizer state; give a checkpoint (a folder "
                     "step-N), or leave out --state"));
  }
  std::unique_ptr<SavedRows> rows(new SavedRows(layout, state));
  SLUICE_ASSIGN_OR_RETURN(const auto files, FilesOfTable(dir, manifest, layout->config()));
  for (const SavedFile* file : files) {
    SLUICE_ASSIGN_OR_RETURN(auto reader, ShardFileReader::Open(env, dir, layout->config(), *file));
    const ShardFileHeader& header = reader->header();
    const uint32_t floats = header.state_floats();
    if (header.dim() != layout->dim() || (floats != 0 && floats != layout->state_floats()) ||
        (state && !reader->has_state()) ||
        (state && !rows->files_.empty() && floats != rows->state_floats_)) {
      return absl::DataLossError(absl::StrCat(
          reader->path(), " is damaged: its rows have ", header.dim(), " weights and ", floats,
          " floats of state; the manifest says ", layout->dim(), " and ", layout->state_floats()));
    }
    if (state) rows->state_floats_ = floats;
    rows->rows_ += header.rows();
    rows->files_.push_back(std::move(reader));
  }
  return rows;
}

void SavedRows::Rewind() {
  file_ = 0;
  runs_.reset();
}

void SavedRows::Append(const std::string& records, RowBlock* block) const {
  const ShardFileReader& file = *files_[file_];
  const size_t step = file.record_bytes(), n = records.size() / step;
  const size_t floats = layout_.dim() + state_floats_;
  size_t at = block->floats.size();
  block->floats.resize(at + n * floats);
  const char* record = records.data();
  for (size_t i = 0; i < n; ++i, record += step, at += floats) {
    uint64_t key;
    std::memcpy(&key, record, sizeof(key));
    block->keys.push_back(key);
    std::memcpy(block->floats.data() + at, record + file.weights_offset(), floats * sizeof(float));
    if (!state_) continue;
    uint64_t last_seen;
    uint32_t count;
    std::memcpy(&last_seen, record + sizeof(key), sizeof(last_seen));
    std::memcpy(&count, record + sizeof(key) + sizeof(last_seen), sizeof(count));
    block->last_seen.push_back(last_seen);
    block->count.push_back(count);
  }
}

absl::StatusOr<bool> SavedRows::Next(RowBlock* block) {
  block->Clear();
  // With room for the records of the last read, which go beyond kBlockRows.
  const size_t most = std::min<uint64_t>(rows_, kBlockRows + kMostReadBytes / sizeof(uint64_t));
  block->keys.reserve(most);
  block->floats.reserve(std::min<uint64_t>(rows_, kBlockRows) * (layout_.dim() + state_floats_) +
                        kMostReadBytes / sizeof(float));
  while (block->size() < kBlockRows && file_ < files_.size()) {
    if (runs_ == nullptr)
      runs_ = std::make_unique<RunReader>(files_[file_].get(), 0, files_[file_]->runs());
    SLUICE_ASSIGN_OR_RETURN(const std::string records, runs_->Next(kMostReadBytes));
    if (!records.empty()) {
      Append(records, block);
      continue;
    }
    ++file_;
    runs_.reset();
  }
  return block->size() > 0;
}

}  // namespace sluice
