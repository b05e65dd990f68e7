// The commits of meta_store_committer, and what a store holds after them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/meta_store/meta_store.h"

namespace sluice {

inline constexpr char kLastKey[] = "last";
inline constexpr uint32_t kKeptEntries = 50;

inline std::string KeyOf(uint32_t i) { return absl::StrFormat("entry/%08d", i); }
// Up to 16 KiB, so that RocksDB flushes and compacts every few hundred commits.
inline std::string ValueOf(uint32_t i) {
  return absl::StrCat(i, std::string(i * 2654435761u % 16384, static_cast<char>('a' + i % 26)));
}

inline std::vector<MetaStore::Write> CommitOf(uint32_t i) {
  std::vector<MetaStore::Write> writes = {{kLastKey, absl::StrCat(i)}, {KeyOf(i), ValueOf(i)}};
  if (i > kKeptEntries) writes.push_back({KeyOf(i - kKeptEntries), std::nullopt});
  return writes;
}

// The entries after commits 1 to n.
inline std::map<std::string, std::string> EntriesAfter(uint32_t n) {
  std::map<std::string, std::string> entries;
  if (n > 0) entries[kLastKey] = absl::StrCat(n);
  for (uint32_t i = n > kKeptEntries ? n - kKeptEntries + 1 : 1; i <= n; ++i)
    entries[KeyOf(i)] = ValueOf(i);
  return entries;
}

}  // namespace sluice
