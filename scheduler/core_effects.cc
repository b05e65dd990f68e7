#include "scheduler/core_effects.h"

namespace sluice {

void CoreEffects::DesiredChanged(Member* member) {
  ++member->version;
  changed_.push_back(WaitKey::Desired(member->id));
}

void CoreEffects::StatusChanged(Job* job) {
  ++job->status_version;
  // The calls that this wakes see the progress as well.
  job->progress_untold = false;
  changed_.push_back(WaitKey::Status(job->job_id));
}

void CoreEffects::JobForgotten(const std::string& job_id) {
  changed_.push_back(WaitKey::Status(job_id));
  changed_.push_back(WaitKey::Phase(job_id));
}

}  // namespace sluice
