#include "common/meta_store/meta_store.h"

#include "absl/strings/str_cat.h"

namespace sluice {

absl::Status CheckCommit(uint64_t term, uint64_t acquired,
                         absl::Span<const MetaStore::Write> writes) {
  if (term == 0 || term > acquired) {
    return absl::InvalidArgumentError(
        absl::StrCat("term ", term, " was not acquired here; the newest acquired term is ",
                     acquired, " (0: none)"));
  }
  // An older term of this object has ended, just as if another scheduler had ended it. Check this
  // before the limits, because ABORTED stops the caller and INVALID_ARGUMENT does not.
  if (term < acquired) return TermMismatch(term, acquired);
  if (writes.size() > MetaStore::kMaxCommitWrites) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a commit of ", writes.size(), " writes; the limit is ", MetaStore::kMaxCommitWrites));
  }
  // The limits are checked here, before a store sees the writes, so that all engines refuse the
  // same commits and a refused commit certainly has no effect.
  size_t bytes = 0;
  for (const MetaStore::Write& write : writes) {
    if (write.key.empty() || write.key.size() > MetaStore::kMaxKeyBytes) {
      return absl::InvalidArgumentError(absl::StrCat("a key of ", write.key.size(),
                                                     " bytes; a key has 1 to ",
                                                     MetaStore::kMaxKeyBytes, " bytes"));
    }
    bytes += write.key.size() + (write.value.has_value() ? write.value->size() : 0);
  }
  if (bytes > MetaStore::kMaxCommitBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a commit of ", bytes,
                                                   " bytes in keys and values; the limit is ",
                                                   MetaStore::kMaxCommitBytes));
  }
  return absl::OkStatus();
}

absl::Status TermMismatch(uint64_t term, uint64_t stored) {
  if (stored > term) {
    return absl::AbortedError(absl::StrCat("term ", term,
                                           " is over: another scheduler, or a later ",
                                           "start of this one, has acquired term ", stored));
  }
  return absl::DataLossError(
      absl::StrCat("the store has lost term ", term, " and now holds term ", stored,
                   " (0: none): it was erased or restored from an older copy. Restart the "
                   "scheduler to continue from what it holds"));
}

}  // namespace sluice
