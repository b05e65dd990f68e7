// The checks of a commit that all engines share.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/meta_store/meta_store.h"

namespace sluice {

// Checks the limits of the writes, and that `term` is `acquired`, the newest term that the object
// has acquired (0: none). ABORTED when `term` is older, INVALID_ARGUMENT otherwise.
absl::Status CheckCommit(uint64_t term, uint64_t acquired,
                         absl::Span<const MetaStore::Write> writes);

// Why a commit under `term` is refused while the store holds the term `stored` (0: none). ABORTED
// when `stored` is newer. DATA_LOSS when it is older: the store has lost a term that it gave.
// REQUIRES: stored != term.
absl::Status TermMismatch(uint64_t term, uint64_t stored);

}  // namespace sluice
