// Why a group has ended, in a form that the ranks can tell each other.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/collective/collective_engine.h"

namespace sluice {

struct GroupFault {
  enum Kind : uint8_t {
    kNone,
    kEnded,      // a rank's process or connection has ended
    kSilent,     // a rank has not taken part in time
    kLeft,       // a rank has left before all was done
    kDisagreed,  // the ranks do not do the same
    kBroken      // a rank has broken the protocol
  };
  Kind kind = kNone;
  uint32_t rank = 0;      // at fault, by its name in the whole group
  uint32_t reporter = 0;  // the rank that noticed it
};

// The error of `self` in the operation `what`. RankAtFault knows the rank. `options`: of the group,
// whose timeout the error names.
absl::Status ErrorOf(const GroupFault& fault, uint32_t self, const std::string& what,
                     const CollectiveOptions& options);
// The fault behind an error, so that another group hears of it.
GroupFault FaultOf(const absl::Status& error, uint32_t self);

// The payload of a status that RankAtFault reads.
extern const char kRankAtFaultPayload[];

}  // namespace sluice
