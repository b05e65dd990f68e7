// What a waiting call waits for: the desired state of a member, the next phase of a job, or its
// status.
//
// The core says which keys an event has changed, so that only their calls are looked at.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace sluice {

struct WaitKey {
  enum Kind : uint8_t { kDesired, kPhase, kStatus };

  static WaitKey Desired(uint64_t member_id) { return {kDesired, member_id, ""}; }
  static WaitKey Phase(std::string job_id) { return {kPhase, 0, std::move(job_id)}; }
  static WaitKey Status(std::string job_id) { return {kStatus, 0, std::move(job_id)}; }

  bool operator==(const WaitKey& other) const {
    return kind == other.kind && member_id == other.member_id && job_id == other.job_id;
  }
  template <typename H>
  friend H AbslHashValue(H state, const WaitKey& key) {
    return H::combine(std::move(state), key.kind, key.member_id, key.job_id);
  }

  Kind kind = kDesired;
  uint64_t member_id = 0;
  std::string job_id;
};

}  // namespace sluice
