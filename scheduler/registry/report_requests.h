// Tracks which members were asked for a fresh report, and by which jobs.
//
// A job asks its members at the end of an epoch and before it is done, so that its figures are
// final. A request is a version of the member's desired state: a report that has seen
// this version was made after the request.
//
// Cost: a report of a member that nobody has asked costs one look-up.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

namespace sluice {

class ReportRequests {
 public:
  // Asking again moves the request to the newer version.
  void Ask(const std::string& job_id, uint64_t member_id, uint64_t version);
  // Takes a report of a member that has seen `seen_version`. Returns the jobs whose requests it
  // answers, in the order in which they asked.
  std::vector<std::string> Answer(uint64_t member_id, uint64_t seen_version);
  // True when no member owes the job a report.
  bool AllAnswered(const std::string& job_id) const { return owed_to_.count(job_id) == 0; }
  // The member is gone and owes no reports.
  void DropMember(uint64_t member_id);
  // The job is over and needs no reports any more.
  void DropJob(const std::string& job_id);

 private:
  struct Request {
    std::string job_id;
    uint64_t version = 0;
  };
  void Settle(const std::string& job_id, uint64_t member_id);

  // The same requests from both sides; neither holds empty sets.
  absl::flat_hash_map<uint64_t, std::vector<Request>> asked_;                // by member id
  absl::flat_hash_map<std::string, absl::flat_hash_set<uint64_t>> owed_to_;  // by job id: members
};

}  // namespace sluice
