#include "model/table_files/named_rows.h"

#include <algorithm>
#include <optional>

#include "common/base/status_macros.h"

namespace sluice {

absl::StatusOr<bool> NamedRows::Next(RowBlock* block, std::vector<uint32_t>* lines) {
  lines->clear();
  while (true) {
    SLUICE_ASSIGN_OR_RETURN(const bool more, rows_->Next(block));
    if (!more || vocabulary_ == nullptr) return more;
    // Closes the gaps of the rows that no value names.
    const size_t floats = columns_.row_floats();
    size_t kept = 0;
    for (size_t i = 0; i < block->size(); ++i) {
      const std::optional<uint32_t> line = vocabulary_->Find(block->keys[i]);
      if (!line) continue;
      lines->push_back(*line);
      block->keys[kept] = block->keys[i];
      std::copy_n(block->floats.begin() + i * floats, floats,
                  block->floats.begin() + kept * floats);
      if (state()) {
        block->last_seen[kept] = block->last_seen[i];
        block->count[kept] = block->count[i];
      }
      ++kept;
    }
    if (kept == 0) continue;
    block->keys.resize(kept);
    block->floats.resize(kept * floats);
    if (state()) {
      block->last_seen.resize(kept);
      block->count.resize(kept);
    }
    return true;
  }
}

absl::StatusOr<uint64_t> NamedRows::Count() {
  if (vocabulary_ == nullptr) return rows_->rows();
  Rewind();
  uint64_t count = 0;
  RowBlock block;
  std::vector<uint32_t> lines;
  while (true) {
    SLUICE_ASSIGN_OR_RETURN(const bool more, Next(&block, &lines));
    if (!more) break;
    count += block.size();
  }
  Rewind();
  return count;
}

}  // namespace sluice
