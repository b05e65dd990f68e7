#include "server/pserver.h"

#include <new>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/printable.h"

namespace sluice {

void Pserver::Reconcile(const std::string& self,
                        const google::protobuf::RepeatedPtrField<JobSpec>& desired) {
  std::set<std::pair<std::string, uint64_t>> wanted;
  for (const JobSpec& spec : desired) wanted.insert({spec.job_id(), spec.instance()});
  std::vector<std::shared_ptr<JobTables>> dropped;
  {
    MutexLock lock(&mutex_);
    for (auto it = jobs_.begin(); it != jobs_.end();) {
      if (wanted.count({it->first, it->second.instance}) != 0) {
        ++it;
        continue;
      }
      if (it->second.tables != nullptr) dropped.push_back(std::move(it->second.tables));
      it = jobs_.erase(it);
    }
  }
  for (auto& job : dropped) {
    job->Close();
    job.reset();
  }
  for (const JobSpec& spec : desired) {
    Hosted hosted;
    {
      MutexLock lock(&mutex_);
      const auto it = jobs_.find(spec.job_id());
      if (it != jobs_.end()) hosted = it->second;
    }
    if (hosted.generation >= spec.route().generation() &&
        (hosted.tables != nullptr || !hosted.error.empty())) {
      continue;
    }
    hosted.instance = spec.instance();
    hosted.generation = spec.route().generation();
    if (hosted.tables != nullptr) {
      const absl::Status moved = hosted.tables->UpdateRoute(spec.route());
      if (!moved.ok()) hosted.error = std::string(moved.message());
    } else {
      absl::StatusOr<std::shared_ptr<JobTables>> opened = Open(spec, self);
      hosted.error = opened.ok() ? "" : std::string(opened.status().message());
      if (opened.ok()) hosted.tables = *std::move(opened);
    }
    MutexLock lock(&mutex_);
    jobs_[spec.job_id()] = std::move(hosted);
  }
}

absl::StatusOr<std::shared_ptr<JobTables>> Pserver::Open(const JobSpec& spec,
                                                         const std::string& self) {
  try {
    return JobTables::Open(spec, self, clock_, limits_);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory to open job ", spec.job_id(), " on pserver ", self,
                     "; make its tables smaller, or use more pservers"));
  }
}

std::vector<HostedJob> Pserver::Report() {
  std::map<std::string, Hosted> jobs;
  {
    MutexLock lock(&mutex_);
    jobs = jobs_;
  }
  std::vector<HostedJob> reports;
  for (const auto& [job_id, hosted] : jobs) {
    HostedJob report;
    if (hosted.tables != nullptr) report = hosted.tables->Report();
    report.set_job_id(job_id);
    report.set_instance(hosted.instance);
    if (hosted.tables == nullptr) report.set_generation(hosted.generation);
    if (!hosted.error.empty()) report.set_error(Printable(hosted.error));
    reports.push_back(std::move(report));
  }
  return reports;
}

void Pserver::TakeTraces(google::protobuf::RepeatedPtrField<TraceBatch>* traces) {
  std::map<std::string, Hosted> jobs;
  {
    MutexLock lock(&mutex_);
    jobs = jobs_;
  }
  for (const auto& [job_id, hosted] : jobs) {
    if (hosted.tables != nullptr && hosted.tables->trace() != nullptr)
      hosted.tables->trace()->Take(traces);
  }
}

void Pserver::GiveBack(const google::protobuf::RepeatedPtrField<TraceBatch>& lost) {
  for (const TraceBatch& batch : lost) {
    const std::shared_ptr<JobTables> job = Find(batch.job_id());
    if (job != nullptr && job->trace() != nullptr) job->trace()->GiveBack(batch);
  }
}

absl::StatusOr<std::vector<SavedFile>> Pserver::SaveShards(const SaveShardsRequest& request) {
  const std::string& job_id = request.job_id();
  std::shared_ptr<JobTables> job = Find(job_id);
  if (job == nullptr || job->instance() != request.instance()) {
    return absl::NotFoundError(
        absl::StrCat("this instance of job ", job_id, " is not open on this pserver"));
  }
  if (request.generation() != job->generation()) {
    return absl::FailedPreconditionError(absl::StrCat("save of generation ", request.generation(),
                                                      ", job ", job_id, " is at generation ",
                                                      job->generation()));
  }
  return job->SaveShards(request.directory());
}

std::unique_ptr<StreamHandler> Pserver::NewHandler(std::shared_ptr<Stream> stream) {
  return std::make_unique<ExchangeHandler>(
      std::move(stream), [this](const std::string& job_id) { return Find(job_id); }, &counters_);
}

std::shared_ptr<JobTables> Pserver::Find(const std::string& job_id) {
  MutexLock lock(&mutex_);
  const auto it = jobs_.find(job_id);
  return it == jobs_.end() ? nullptr : it->second.tables;
}

}  // namespace sluice
