#include "client/key_set.h"

#include "absl/strings/str_cat.h"

namespace sluice {

absl::Status CheckKeys(const ShardIndex& index, uint32_t table, const KeySet* keys) {
  if (table >= index.tables().size() || !index.tables()[table]->sparse()) {
    return absl::InvalidArgumentError(absl::StrCat("table ", table, " is not a sparse table"));
  }
  const TableLayout& layout = *index.tables()[table];
  bool good = keys != nullptr && keys->offsets.size() == layout.num_shards() + size_t{1} &&
              keys->offsets.front() == 0 && keys->offsets.back() == keys->keys.size();
  for (uint32_t s = 0; good && s < layout.num_shards(); ++s) {
    good = keys->offsets[s] <= keys->offsets[s + 1];
  }
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("keys for table '", layout.name(),
                                                 "' are not grouped by its ", layout.num_shards(),
                                                 " shards; use KeyDeduplicator"));
}

}  // namespace sluice
