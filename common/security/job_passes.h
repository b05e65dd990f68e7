// Passes: secrets by which the scheduler recognizes its members, and pservers the callers that the
// scheduler has sent to a job.
//
// A role alone does not say which member a process is, or which rank of which job a worker may be.
// So the scheduler gives each member that registers a secret for its later calls. It also gives
// each worker, with its assignment, the pass of its rank and incarnation, and gives the pservers of
// the job the key that makes these passes. Neither is ever written into logs, results or
// checkpoints.
//
//   job key        = HMAC-SHA256(cluster key, "job" instance)
//   worker's pass  = HMAC-SHA256(job key, "worker" rank incarnation)
//   pserver's pass = HMAC-SHA256(job key, "pserver" index)
//   tables' pass   = HMAC-SHA256(job key, "tables" rank)
//   secret         = HMAC-SHA256(cluster key, "member" id life)
//
// By the tables' pass a restarted scheduler recognizes a pserver that has the job's tables open.
// All pservers of a job have the key of its passes, so these passes keep out others than them.
//
// Numbers are 8 bytes each, little-endian. The cluster key is random and kept in the scheduler's
// state store, so that members continue when the scheduler restarts.
//
// Thread safety: immutable.
// Source: RFC 2104 (HMAC), RFC 6234 (SHA-256).
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace sluice {

// A new cluster key, from the kernel's random source.
std::string NewPassKey();
// The key of one instance of a job. An empty cluster key has empty job keys.
std::string JobPassKey(absl::string_view cluster_key, uint64_t instance);

// The secret of a member. `life`: RegisterRequest.life, so that a repeated registration gets the
// same one. An empty cluster key makes an empty secret, which fits nobody.
std::string MemberSecret(absl::string_view cluster_key, uint64_t member_id, uint64_t life);
// Compares in constant time. False when either is empty.
bool SameSecret(absl::string_view a, absl::string_view b);

class JobPasses {
 public:
  // `job_key` is a JobPassKey. Empty: the job has no passes, and nobody is accepted.
  explicit JobPasses(std::string job_key) : JobPasses(std::move(job_key), /*closed=*/true) {}

  // Accepts every pass, for tables that serve only their own process.
  static JobPasses OfNoJob() { return JobPasses("", /*closed=*/false); }

  std::string OfWorker(uint32_t rank, uint64_t incarnation) const;
  // `index`: of the pserver in the job's route.
  std::string OfPserver(uint32_t index) const;
  // `rank`: of the pserver in the cluster.
  std::string OfTables(uint32_t rank) const;

  // PERMISSION_DENIED: this is not the pass of that caller.
  absl::Status CheckWorker(uint32_t rank, uint64_t incarnation, absl::string_view pass) const;
  absl::Status CheckPserver(uint32_t index, absl::string_view pass) const;
  absl::Status CheckTables(uint32_t rank, absl::string_view pass) const;

 private:
  JobPasses(std::string job_key, bool closed) : key_(std::move(job_key)), closed_(closed) {}
  bool Fits(const std::string& right, absl::string_view pass) const {
    return !closed_ || SameSecret(right, pass);
  }

  const std::string key_;
  const bool closed_;
};

}  // namespace sluice
