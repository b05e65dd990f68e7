#include "scheduler/registry/report_requests.h"

#include <algorithm>

namespace sluice {

void ReportRequests::Ask(const std::string& job_id, uint64_t member_id, uint64_t version) {
  std::vector<Request>& requests = asked_[member_id];
  for (Request& request : requests) {
    if (request.job_id != job_id) continue;
    // The job asks again because its figures may have changed since the first request. A report
    // that has seen only the older version may lack the change, so it no longer counts.
    request.version = version;
    return;
  }
  requests.push_back({job_id, version});
  owed_to_[job_id].insert(member_id);
}

std::vector<std::string> ReportRequests::Answer(uint64_t member_id, uint64_t seen_version) {
  std::vector<std::string> answered;
  const auto asked = asked_.find(member_id);
  if (asked == asked_.end()) return answered;
  std::vector<Request> open;
  for (Request& request : asked->second) {
    // This report left the member before the request reached it.
    if (seen_version < request.version) {
      open.push_back(std::move(request));
    } else {
      Settle(request.job_id, member_id);
      answered.push_back(std::move(request.job_id));
    }
  }
  if (open.empty()) {
    asked_.erase(asked);
  } else {
    asked->second = std::move(open);
  }
  return answered;
}

void ReportRequests::DropMember(uint64_t member_id) {
  const auto asked = asked_.find(member_id);
  if (asked == asked_.end()) return;
  // Nobody can answer for it any more, and its jobs must not wait.
  for (const Request& request : asked->second) Settle(request.job_id, member_id);
  asked_.erase(asked);
}

void ReportRequests::DropJob(const std::string& job_id) {
  const auto owed = owed_to_.find(job_id);
  if (owed == owed_to_.end()) return;
  for (const uint64_t member_id : owed->second) {
    const auto asked = asked_.find(member_id);
    std::vector<Request>& requests = asked->second;
    requests.erase(
        std::find_if(requests.begin(), requests.end(),
                     [&job_id](const Request& request) { return request.job_id == job_id; }));
    // An empty entry would be looked at with every report of the member.
    if (requests.empty()) asked_.erase(asked);
  }
  owed_to_.erase(owed);
}

void ReportRequests::Settle(const std::string& job_id, uint64_t member_id) {
  const auto owed = owed_to_.find(job_id);
  owed->second.erase(member_id);
  if (owed->second.empty()) owed_to_.erase(owed);
}

}  // namespace sluice
