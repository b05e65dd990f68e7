// The claim of a process to its role and rank, which another member (the incumbent) may hold.
//
//   refused -> the incumbent's process has ended on this machine: takes the place at once, if the
//              scheduler believes it (RegisterRequest.ended_pid)
//           -> the incumbent is silent: asks again until its lease runs out and the place is free
//           -> the incumbent reports: fails with ALREADY_EXISTS
//           -> the scheduler itself waits for its term: asks again
//
// Thread safety: one thread.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/daemon/scheduler_client.h"

namespace sluice {

class PlaceClaim {
 public:
  struct Options {
    SchedulerClient* scheduler = nullptr;  // outlives the claim
    RegisterRequest self;
    Clock* clock = nullptr;
    std::function<bool(uint32_t pid)> process_has_ended;  // in this process's space
    std::function<void(const std::string&)> log;          // may be null
  };
  explicit PlaceClaim(Options options) : options_(std::move(options)) {}

  // Asks once. `holds`: RegisterRequest.holds. Empty: refused for now; ask again after a pause.
  // ALREADY_EXISTS: the incumbent has reported since its first refusal. Other errors come from
  // SchedulerClient::Register.
  absl::StatusOr<std::optional<RegisterReply>> Ask(
      const google::protobuf::RepeatedPtrField<HeldJob>& holds = {});

 private:
  bool HasEnded(const Incumbent& incumbent) const;
  absl::Status Judge(const Incumbent& incumbent);

  const Options options_;
  std::string incumbent_;  // the process for which we were refused; empty: none
  std::string waits_for_;  // RegisterReply.waits_for of the last reply
  absl::Time refused_at_;  // when we were first refused for that member
};

}  // namespace sluice
