// Passes: secrets by which a pserver recognizes the callers that the scheduler has sent to a job.
//
// A role alone does not say which rank of which job a worker may be. So the scheduler gives each
// worker, with its assignment, the pass of its rank and incarnation, and gives the pservers of the
// job the key that makes these passes. Neither is ever written into logs, results or checkpoints.
//
//   job key        = HMAC-SHA256(cluster key, "job" instance)
//   worker's pass  = HMAC-SHA256(job key, "worker" rank incarnation)
//   pserver's pass = HMAC-SHA256(job key, "pserver" index)
//
// Numbers are 8 bytes each, little-endian. The cluster key is random and kept in the scheduler's
// state store, so that members continue when the scheduler restarts.
//
// Thread safety: immutable.
// Source: RFC 2104 (HMAC), RFC 6234 (SHA-256).
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace sluice {

// A new cluster key, from the kernel's random source.
std::string NewPassKey();
// The key of one instance of a job. An empty cluster key has empty job keys.
std::string JobPassKey(absl::string_view cluster_key, uint64_t instance);

class JobPasses {
 public:
  // `job_key` is a JobPassKey. Empty: the job has no passes, and Check accepts any.
  explicit JobPasses(std::string job_key = "") : key_(std::move(job_key)) {}

  std::string OfWorker(uint32_t rank, uint64_t incarnation) const;
  // `index`: of the pserver in the job's route.
  std::string OfPserver(uint32_t index) const;

  // PERMISSION_DENIED: this is not the pass of that caller.
  absl::Status CheckWorker(uint32_t rank, uint64_t incarnation, absl::string_view pass) const;
  absl::Status CheckPserver(uint32_t index, absl::string_view pass) const;

 private:
  const std::string key_;
};

}  // namespace sluice
