// Tracks which of the schedulers that share a MetaStore leads.
//
// The scheduler with the newest term leads as long as it keeps its lease, which ends with its
// process. Leases only say when another one may take over; terms decide. MetaStore::AcquireTerm
// takes the term even from a leader that still runs.
//
// Thread safety: safe from any thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice {

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

}  // namespace sluice
