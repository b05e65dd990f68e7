#include "server/service/pserver.h"

#include <algorithm>
#include <new>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/daemon/control_plane.h"
#include "common/saved_model/checkpoint.h"
#include "common/security/refusal_reason.h"
#include "server/service/replica_handler.h"
#include "server/tables/job_opener.h"

namespace sluice {
namespace {

JobResources With(JobResources resources, std::shared_ptr<RowMemory> row_memory, CutWriter* writer,
                  ShardThreads* threads, const std::function<void()>& change) {
  resources.row_memory = std::move(row_memory);
  resources.cut_writer = writer;
  resources.shard_threads = threads;
  resources.on_report_changed = change;
  return resources;
}

HostedJob WithoutContents(const HostedJob& report, size_t bytes, size_t max_bytes) {
  HostedJob bounded;
  bounded.set_job_id(report.job_id());
  bounded.set_instance(report.instance());
  bounded.set_generation(report.generation());
  bounded.set_error(absl::StrCat("what this pserver reports of the job takes ", bytes,
                                 " bytes, and all jobs of a pserver ", "may take ", max_bytes,
                                 "; use fewer shards (num_shards) or more pservers"));
  return bounded;
}

}  // namespace

Pserver::Pserver(JobResources resources, std::function<void()> on_change, int threads)
    : row_memory_(std::make_shared<RowMemory>(resources.clock, resources.available_memory)),
      cut_writer_(/*threads=*/0, row_memory_),
      shard_threads_(threads - 1),
      resources_(With(std::move(resources), row_memory_, &cut_writer_, &shard_threads_, on_change)),
      on_change_(std::move(on_change)),
      refusals_(resources_.audit, resources_.clock) {}

void Pserver::SetCutOrders(const google::protobuf::RepeatedPtrField<CutOrder>& orders) {
  for (const CutOrder& order : orders) {
    const std::shared_ptr<JobTables> job = Find(order.job_id());
    if (job != nullptr && job->instance() == order.instance()) job->SetCutOrder(order);
  }
}

void Pserver::Reconcile(const std::string& self,
                        const google::protobuf::RepeatedPtrField<JobSpec>& desired) {
  // First: a hello for one of these jobs is not stray, even if opening the job takes long.
  refusals_.SetJobs(desired);
  JoinEnded();
  Drop(desired);
  for (const JobSpec& spec : desired) {
    Hosted hosted;
    {
      MutexLock lock(&mutex_);
      const auto opening = opening_.find(spec.job_id());
      if (opening != opening_.end()) {
        // A later route is taken over when it is open. But a load from copies that nobody has any
        // more would never end.
        if (!ReadsCopies(opening->second->spec, self) || ReadsCopies(spec, self) ||
            opening->second->progress.CopiesAreVoid()) {
          continue;
        }
        opening->second->progress.Cancel();
        leaving_.push_back(std::move(opening->second));
        opening_.erase(opening);
      }
      const auto it = jobs_.find(spec.job_id());
      if (it != jobs_.end()) hosted = it->second;
    }
    // A job that could not be opened is tried again only with a later route.
    if (hosted.generation >= spec.route().generation() &&
        (hosted.tables != nullptr || !hosted.error.empty())) {
      continue;
    }
    if (hosted.tables != nullptr) {
      hosted.generation = spec.route().generation();
      const absl::Status moved = hosted.tables->UpdateRoute(spec);
      if (!moved.ok()) hosted.error = std::string(moved.message());
    } else if (IsLeaving(spec.job_id())) {
      // Two at a time might not fit into memory. on_change_ makes the scheduler ask again.
      continue;
    } else if (HasTablesToLoad(spec, self)) {
      StartOpening(spec, self);
      continue;
    } else {
      hosted = OpenHosted(spec, self, nullptr);
    }
    MutexLock lock(&mutex_);
    jobs_[spec.job_id()] = std::move(hosted);
  }
}

void Pserver::Drop(const google::protobuf::RepeatedPtrField<JobSpec>& desired) {
  // Another instance of the same job_id has nothing in common with this one.
  std::set<std::pair<std::string, uint64_t>> wanted;
  for (const JobSpec& spec : desired) wanted.insert({spec.job_id(), spec.instance()});
  std::vector<std::shared_ptr<JobTables>> dropped;
  {
    MutexLock lock(&mutex_);
    for (auto it = opening_.begin(); it != opening_.end();) {
      if (wanted.count({it->first, it->second->spec.instance()}) != 0) {
        ++it;
        continue;
      }
      it->second->progress.Cancel();
      leaving_.push_back(std::move(it->second));
      it = opening_.erase(it);
    }
    for (auto it = jobs_.begin(); it != jobs_.end();) {
      if (wanted.count({it->first, it->second.instance}) != 0) {
        ++it;
        continue;
      }
      if (it->second.tables != nullptr) dropped.push_back(std::move(it->second.tables));
      it = jobs_.erase(it);
    }
  }
  // Without the lock: closing waits for threads, and large tables take long to free.
  for (auto& job : dropped) {
    job->Close();
    job.reset();
  }
}

Pserver::Hosted Pserver::OpenHosted(const JobSpec& spec, const std::string& self,
                                    LoadProgress* progress) {
  Hosted hosted;
  hosted.instance = spec.instance();
  hosted.generation = spec.route().generation();
  absl::StatusOr<std::shared_ptr<JobTables>> opened = Open(spec, self, progress);
  if (opened.ok()) {
    hosted.tables = *std::move(opened);
  } else {
    // Kept and reported, so that the scheduler can end the job with this reason.
    hosted.error = std::string(opened.status().message());
  }
  return hosted;
}

void Pserver::StartOpening(const JobSpec& spec, const std::string& self) {
  const auto opening = std::make_shared<Opening>();
  opening->spec = spec;
  opening->self = self;
  // Held until the entry has its thread: RunOpening looks for itself in opening_ when it ends.
  MutexLock lock(&mutex_);
  jobs_.erase(spec.job_id());  // an entry that an earlier route failed to open
  opening_[spec.job_id()] = opening;
  try {
    opening->thread = std::thread([this, opening, self] { RunOpening(opening, self); });
  } catch (const std::system_error& error) {
    opening_.erase(spec.job_id());
    Hosted& hosted = jobs_[spec.job_id()];
    hosted.instance = spec.instance();
    hosted.generation = spec.route().generation();
    hosted.error = absl::StrCat("cannot start a thread that opens job ", spec.job_id(), ": ",
                                error.what(), "; raise the limit of processes (ulimit -u)");
  }
}

void Pserver::RunOpening(const std::shared_ptr<Opening>& opening, const std::string& self) {
  Hosted hosted = OpenHosted(opening->spec, self, &opening->progress);
  const auto end = [&] {
    opening->ended = true;
    opened_.NotifyAll();
  };
  {
    MutexLock lock(&mutex_);
    const auto it = opening_.find(opening->spec.job_id());
    // Otherwise the job was dropped meanwhile, or is being opened anew.
    if (it != opening_.end() && it->second == opening) {
      jobs_[it->first] = std::move(hosted);
      leaving_.push_back(std::move(it->second));
      opening_.erase(it);
      end();
    }
  }
  // Free a dropped job's memory before anybody knows of the drop.
  hosted.tables.reset();
  {
    MutexLock lock(&mutex_);
    end();
  }
  if (on_change_) on_change_();
}

bool Pserver::IsLeaving(const std::string& job_id) {
  MutexLock lock(&mutex_);
  return std::any_of(leaving_.begin(), leaving_.end(), [&](const auto& opening) {
    return !opening->ended && opening->spec.job_id() == job_id;
  });
}

void Pserver::JoinEnded() {
  std::vector<std::shared_ptr<Opening>> ended;
  {
    MutexLock lock(&mutex_);
    for (size_t i = 0; i < leaving_.size();) {
      if (!leaving_[i]->ended) {
        ++i;
        continue;
      }
      ended.push_back(std::move(leaving_[i]));
      leaving_[i] = std::move(leaving_.back());
      leaving_.pop_back();
    }
  }
  for (const auto& opening : ended) opening->thread.join();
}

void Pserver::Stop() {
  // Hellos that still wait are recorded now, because there may be no further report.
  refusals_.RecordStrayHellos(/*all=*/true);
  cut_writer_.Stop();
  std::vector<std::shared_ptr<Opening>> leaving;
  {
    MutexLock lock(&mutex_);
    for (auto& [job_id, opening] : opening_) {
      opening->progress.Cancel();
      leaving_.push_back(std::move(opening));
    }
    opening_.clear();
    leaving.swap(leaving_);
  }
  // Without the lock, which these threads take when they end.
  for (const auto& opening : leaving) opening->thread.join();
}

void Pserver::WaitUntilOpenForTest() {
  MutexLock lock(&mutex_);
  while (!opening_.empty()) opened_.Wait(&mutex_);
}

absl::StatusOr<std::shared_ptr<JobTables>> Pserver::Open(const JobSpec& spec,
                                                         const std::string& self,
                                                         LoadProgress* progress) {
  try {
    return JobTables::Open(spec, self, resources_, progress);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory to open job ", spec.job_id(), " on pserver ", self,
                     "; make its tables smaller, or use more pservers"));
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no thread to open job ", spec.job_id(), " on pserver ", self, ": ",
                     error.what(), "; raise the limit of threads of this process"));
  }
}

HostedJob Pserver::ReportOf(const Opening& opening) {
  constexpr double kMiB = 1 << 20;
  HostedJob report;  // generation 0: not open yet
  report.set_job_id(opening.spec.job_id());
  report.set_instance(opening.spec.instance());
  report.set_loaded_bytes(opening.progress.read());
  report.set_load_bytes(opening.progress.planned());
  report.set_waiting_for(absl::StrFormat("%s (%.1f of %.1f MiB read)",
                                         Printable(SourceOfTables(opening.spec, opening.self)),
                                         report.loaded_bytes() / kMiB, report.load_bytes() / kMiB));
  return report;
}

std::vector<HostedJob> Pserver::Report() {
  std::map<std::string, Hosted> jobs;
  std::vector<HostedJob> reports;
  {
    MutexLock lock(&mutex_);
    jobs = jobs_;
    for (const auto& [job_id, opening] : opening_) reports.push_back(ReportOf(*opening));
  }
  // Without the lock: a report locks each shard, and streams look up jobs meanwhile.
  for (const auto& [job_id, hosted] : jobs) {
    HostedJob report;
    if (hosted.tables != nullptr) report = hosted.tables->Report();
    report.set_job_id(job_id);
    report.set_instance(hosted.instance);
    // The tables have another generation when they could not be given this one.
    if (hosted.tables == nullptr || !hosted.error.empty()) report.set_generation(hosted.generation);
    if (!hosted.error.empty()) report.set_error(Printable(hosted.error));
    reports.push_back(std::move(report));
  }
  BoundReports(kMaxHostedBytes, &reports);
  return reports;
}

void Pserver::FillHolds(uint32_t rank, google::protobuf::RepeatedPtrField<HeldJob>* holds) {
  MutexLock lock(&mutex_);
  for (const auto& [job_id, hosted] : jobs_) {
    if (hosted.tables == nullptr || !hosted.error.empty()) continue;
    HeldJob* const held = holds->Add();
    held->set_job_id(job_id);
    held->set_instance(hosted.instance);
    held->set_generation(hosted.generation);
    held->set_checkpoint(hosted.tables->newest_cut());
    // Proves to a scheduler that has just started that the job's own key opened these tables.
    held->set_pass(hosted.tables->passes().OfTables(rank));
  }
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
    // The next report carries them.
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
  SLUICE_RETURN_IF_ERROR(
      job->passes().CheckWorker(request.rank(), request.incarnation(), request.pass()));
  // Otherwise each rank could fill the disk at any time, with copies under ever new names.
  if (request.rank() != 0 || !job->MaySaveAs(request.save_id())) {
    return Because(
        RefusalReason::kPath,
        absl::PermissionDeniedError(absl::StrCat(
            "job ", job_id, " is saved by rank 0 under the ids of its instance, not by rank ",
            request.rank(), " as '", Printable(request.save_id()), "'")));
  }
  // A caller must not write to another folder, such as that of another job.
  if (request.directory() != job->model_dir()) {
    return Because(RefusalReason::kPath,
                   absl::PermissionDeniedError(absl::StrCat("job ", job_id, " saves its model to ",
                                                            job->model_dir(), ", not to ",
                                                            Printable(request.directory()))));
  }
  if (request.generation() != job->generation()) {
    return absl::FailedPreconditionError(absl::StrCat("save of generation ", request.generation(),
                                                      ", job ", job_id, " is at generation ",
                                                      job->generation()));
  }
  absl::StatusOr<std::vector<SavedFile>> files =
      job->SaveShards(request.directory(), request.save_id());
  // Such a refusal comes from the file system or the roots.
  if (absl::IsPermissionDenied(files.status()))
    return Because(RefusalReason::kPath, files.status());
  return files;
}

std::unique_ptr<StreamHandler> Pserver::NewHandler(std::shared_ptr<Stream> stream,
                                                   const PeerIdentity& peer) {
  return std::make_unique<ExchangeHandler>(
      std::move(stream), [this](const std::string& job_id) { return Find(job_id); }, &counters_,
      refusals_.Of(peer, kExchangeMethod), &rank_streams_);
}

std::unique_ptr<StreamHandler> Pserver::NewReplicaHandler(std::shared_ptr<Stream> stream,
                                                          const PeerIdentity& peer) {
  return std::make_unique<ReplicaHandler>(
      std::move(stream), [this](const std::string& job_id) { return Find(job_id); },
      refusals_.Of(peer, kReplicaMethod));
}

std::shared_ptr<JobTables> Pserver::Find(const std::string& job_id) {
  MutexLock lock(&mutex_);
  const auto it = jobs_.find(job_id);
  return it == jobs_.end() ? nullptr : it->second.tables;
}

void BoundReports(size_t max_bytes, std::vector<HostedJob>* reports) {
  std::vector<std::pair<size_t, HostedJob*>> sizes;
  size_t total = 0;
  for (HostedJob& report : *reports) {
    sizes.emplace_back(report.ByteSizeLong(), &report);
    total += sizes.back().first;
  }
  if (total <= max_bytes) return;
  // The largest first, so that as few jobs as possible end.
  std::sort(sizes.begin(), sizes.end(),
            [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& [bytes, report] : sizes) {
    if (total <= max_bytes) return;
    *report = WithoutContents(*report, bytes, max_bytes);
    total += report->ByteSizeLong();
    total -= bytes;
  }
}

}  // namespace sluice
