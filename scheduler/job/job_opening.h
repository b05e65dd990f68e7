// Decides when a starting job can run: its pservers must open its tables, and its output folder
// must be ready.
//
// Both must happen within `wait`. For a pserver that reads the job's initial model or checkpoint,
// the time counts from its last progress; for everything else it counts from the start of the job.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "scheduler/members/membership.h"
#include "scheduler/members/pause_detector.h"

namespace sluice {

class Job;

class JobOpening {
 public:
  struct Decision {
    enum Kind { kWait, kRun, kFail };
    Kind kind = kWait;
    std::string message;      // kFail: who was too late, and what to do
    bool progressed = false;  // a pserver has read more values
  };

  // Starts the time when the pservers are asked to open the tables.
  void Begin(absl::Time now) { begun_at_ = now; }
  void OutputReady() { output_ready_ = true; }
  bool output_ready() const { return output_ready_; }

  // Decides whether the job can run now.
  // REQUIRES: `job` owns this opening and is starting.
  Decision Decide(const Job& job, const Membership& members, const PauseDetector& pauses,
                  absl::Duration wait, absl::Time now);

 private:
  // How much of the saved values a pserver has read, and since when it has read no more.
  struct Load {
    uint64_t bytes = 0;
    absl::Time since;
  };
  // Records how much the pserver reports to have read.
  const Load& NoteLoad(const Job& job, const Member& pserver, absl::Time now, bool* progressed);

  absl::Time begun_at_;
  bool output_ready_ = false;
  std::map<uint64_t, Load> loads_;  // by member id
};

}  // namespace sluice
