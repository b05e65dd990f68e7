// The scheduler's durable state: a small ordered map of keys and values that one scheduler at a
// time may change.
//
// A scheduler acquires a term, scans what its predecessor left, and then commits its changes under
// this term. Once a newer term exists, the store refuses commits under older ones. A scheduler that
// was paused or cut off therefore cannot overwrite the state of its successor.
//
// Atomicity: a commit takes effect as a whole or not at all, and a scan sees whole commits only.
//
// Durability: a commit or a term that returned OK survives kill -9 and a power failure.
//
// Order: commits take effect in the order in which they return OK.
//
// Errors:
//   ABORTED             A newer term exists. The commit has no effect, now or later.
//   INVALID_ARGUMENT    A limit is exceeded, or the object has not acquired this term. No effect.
//   RESOURCE_EXHAUSTED  The disk, or the quota of the store, is full.
//   UNAVAILABLE         The store did not answer in time, or could not write.
//   DATA_LOSS           The stored data is damaged. The message names the folder or the key.
//   etcd's refusals, such as PERMISSION_DENIED, keep their code.
// After any error other than the first two, the outcome of a commit is open: it may take effect as
// a whole, until a later commit with writes, or AcquireTerm, of the same object returns OK and
// settles it.
// Committing the same writes again is always correct. A process must not promise either outcome
// while it is open: if it ends then, its successor sees which one it was.
//
// Thread safety: safe from any thread. Commits and terms of one object run one after another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace sluice {

// Tracks which of the schedulers that share a MetaStore leads.
//
// The scheduler with the newest term leads as long as it keeps its lease, which ends with its
// process. Leases only say when another one may take over; terms decide. MetaStore::AcquireTerm
// takes the term even from a leader that still runs.
//
// Thread safety: safe from any thread.
class Leadership {
 public:
  struct Leader {
    std::string name;    // "": nobody leads
    bool ended = false;  // the last one has ended the cluster; then nobody leads
  };

  virtual ~Leadership() = default;

  // Errors: those of MetaStore::Scan.
  virtual absl::StatusOr<Leader> Find() = 0;
  // MetaStore::AcquireTerm, but only when nobody leads. FAILED_PRECONDITION: somebody does.
  virtual absl::StatusOr<uint64_t> AcquireFreeTerm() = 0;
  // Tells the schedulers that wait for the term that the cluster has ended.
  // Errors: those of MetaStore::Commit.
  virtual absl::Status EndCluster(uint64_t term) = 0;
};

class MetaStore {
 public:
  // Keys and values are arbitrary bytes.
  struct Write {
    std::string key;
    std::optional<std::string> value;  // absent: delete the key, if it exists
  };
  struct Entry {
    std::string key;
    std::string value;
  };

  // A key has 1 to kMaxKeyBytes bytes. A commit has at most kMaxCommitWrites writes, whose keys and
  // values together have at most kMaxCommitBytes bytes. The limits leave room in etcd's own: 128
  // operations in a list and 1.5 MiB in a request.
  static constexpr size_t kMaxKeyBytes = 512;
  static constexpr size_t kMaxCommitWrites = 1000;
  static constexpr size_t kMaxCommitBytes = size_t{1} << 20;

  virtual ~MetaStore() = default;

  // Returns a term greater than all terms that the store has ever given, 1 or more. Terms may skip
  // numbers. Once this returns, commits under older terms can no longer take effect: a scan that
  // follows sees the final state of the predecessor.
  virtual absl::StatusOr<uint64_t> AcquireTerm() = 0;

  // Applies the writes in their order, so the last of several writes to one key counts. `term` is
  // the newest that this object has acquired. A commit without writes only reads whether the term
  // is still the newest: it settles no open outcome, and succeeds in a store that is full.
  virtual absl::Status Commit(uint64_t term, absl::Span<const Write> writes) = 0;

  // All entries whose keys begin with `prefix`, in ascending order of their keys' bytes, as of one
  // moment. An empty prefix matches all entries. Needs no term.
  virtual absl::StatusOr<std::vector<Entry>> Scan(const std::string& prefix) = 0;

  // Who leads, among the schedulers of several hosts; null in a store of one process. Lives as long
  // as the store.
  virtual Leadership* leadership() { return nullptr; }
};

// Checks the limits of the writes, and that `term` is `acquired`, the newest term that the object
// has acquired (0: none). ABORTED when `term` is older, INVALID_ARGUMENT otherwise.
absl::Status CheckCommit(uint64_t term, uint64_t acquired,
                         absl::Span<const MetaStore::Write> writes);

// Why a commit under `term` is refused while the store holds the term `stored` (0: none). ABORTED
// when `stored` is newer. DATA_LOSS when it is older: the store has lost a term that it gave.
// REQUIRES: stored != term.
absl::Status TermMismatch(uint64_t term, uint64_t stored);

}  // namespace sluice
