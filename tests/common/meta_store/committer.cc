// meta_store_committer DIR: commits to the RocksDB store in DIR until it is killed, and prints the
// number of each commit when the commit has returned OK, one a line. Continues after the last
// number that it finds. committed_entries.h says what it commits.
#include <unistd.h>

#include <cstdio>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/env.h"
#include "common/meta_store/rocksdb_meta_store.h"
#include "tests/common/meta_store/committed_entries.h"

int main(int argc, char** argv) {
  using namespace sluice;
  if (argc != 2) return 2;
  auto store = RocksdbMetaStore::Open(Env::Real(), argv[1]);
  if (!store.ok()) {
    std::fprintf(stderr, "%s\n", store.status().ToString().c_str());
    return 1;
  }
  const uint64_t term = (*store)->AcquireTerm().value_or(0);
  uint32_t i = 0;
  const auto last = (*store)->Scan(kLastKey);
  if (!last.ok() || (!last->empty() && !absl::SimpleAtoi(last->front().value, &i))) return 1;
  while (true) {
    const absl::Status committed = (*store)->Commit(term, CommitOf(++i));
    if (!committed.ok()) {
      std::fprintf(stderr, "%s\n", committed.ToString().c_str());
      return 1;
    }
    const std::string line = absl::StrCat(i, "\n");
    if (write(STDOUT_FILENO, line.data(), line.size()) != static_cast<ssize_t>(line.size()))
      return 1;
  }
}
