#include "scheduler/job.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/saved_model/checkpoint.h"

namespace sluice {

bool AddWarning(Job* job, std::string warning) {
  std::vector<std::string>& all = job->warnings;
  if (std::find(all.begin(), all.end(), warning) != all.end()) return false;
  if (all.size() >= kMaxWarnings) return false;
  if (all.size() + 1 == kMaxWarnings) warning = "further warnings are left out";
  all.push_back(std::move(warning));
  return true;
}

bool Serves(const Job& job, const Member& member) {
  return member.job_id == job.job_id ||
         std::count(job.pservers.members.begin(), job.pservers.members.end(), member.id) > 0;
}

bool IsOfLife(const Job& job, const RankSlot& slot, const WorkerProgress& progress) {
  return progress.job_id() == job.job_id && progress.incarnation() == slot.incarnation();
}

const HostedJob* HostedOf(const Job& job, const Member& member) {
  const auto it = member.hosted.find(job.job_id);
  // Another instance has the same job_id, but its tables hold other values.
  if (it == member.hosted.end() || it->second.instance() != job.spec.instance()) return nullptr;
  return &it->second;
}

bool HasOpened(const Job& job, const Member& pserver) {
  const HostedJob* hosted = HostedOf(job, pserver);
  return hosted != nullptr && hosted->generation() == job.spec.route().generation();
}

std::string SaveIdOf(const Job& job) {
  if (!job.save_id.empty()) return job.save_id;
  if (job.spec.instance() != 0) return ModelSaveId(job.spec.instance());
  // Incarnations begin with the boot number of the scheduler.
  if (job.ranks.slots.empty()) return "";
  return absl::StrCat(absl::Hex(job.ranks.slots[0].incarnation(), absl::kZeroPad16));
}

}  // namespace sluice
