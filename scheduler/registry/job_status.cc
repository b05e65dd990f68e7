#include "scheduler/registry/job_status.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/config/mode.h"
#include "common/config/own_data.h"
#include "common/daemon/table_rows.h"

namespace sluice {
namespace {

const char* StatusWord(JobState outcome) {
  switch (outcome) {
    case JOB_DONE:
      return "done";
    case JOB_CANCELLED:
      return "cancelled";
    default:
      return "failed";
  }
}

// The reports of the job's living workers.
std::vector<const WorkerProgress*> Progress(const Job& job, const Membership& members) {
  std::vector<const WorkerProgress*> all;
  for (const RankSlot& slot : job.ranks.slots()) {
    const Member* member = members.ById(slot.member_id());
    // A late report of an earlier attempt may be ahead of this one.
    if (member != nullptr && IsOfLife(job, slot, member->progress))
      all.push_back(&member->progress);
  }
  return all;
}

// "rank 1 (worker 3 (pid 7 on host h))"
std::string DescribeRank(const Job& job, uint32_t rank, const Membership& members) {
  const Member* member = members.ById(job.ranks.slots()[rank].member_id());
  return absl::StrCat("rank ", rank, " (",
                      member == nullptr
                          ? absl::StrCat("worker ", job.ranks.slots()[rank].worker(), ", gone")
                          : DescribeMember(*member),
                      ")");
}

// The sum of the workers' speeds while the job trains.
double ExamplesPerSecond(const Job& job, const Membership& members) {
  if (!job.run() || job.run()->phases().current().kind() != Phase::TRAIN) return 0;
  double sum = 0;
  for (const WorkerProgress* progress : Progress(job, members)) {
    sum += progress->examples_per_second();
  }
  return sum;
}

// Sync: the largest step of a worker; else the sum of all workers' steps.
uint64_t GlobalStep(const Job& job, const Membership& members) {
  const bool sync = ModeOf(job.config().strategy()) == Mode::kSync;
  uint64_t step = 0;
  for (const WorkerProgress* progress : Progress(job, members)) {
    step = sync ? std::max(step, progress->step()) : step + progress->step();
  }
  return step;
}

// The sum of the reports of the job's pservers.
Staleness SumStaleness(const Job& job, const Membership& members) {
  Staleness sum;
  for (const uint64_t id : job.pservers.members()) {
    const Member* member = members.ById(id);
    if (member == nullptr) continue;
    const HostedJob* hosted = HostedOf(job, *member);
    if (hosted == nullptr) continue;
    const Staleness& one = hosted->staleness();
    sum.set_pushes(sum.pushes() + one.pushes());
    sum.set_sum(sum.sum() + one.sum());
    sum.set_max(std::max(sum.max(), one.max()));
  }
  return sum;
}

// The job's sparse tables, each as the sum of the reports of its pservers.
google::protobuf::RepeatedPtrField<TableStatus> SumTables(const Job& job,
                                                          const Membership& members) {
  google::protobuf::RepeatedPtrField<TableStatus> sums;
  for (const TableConfig& table : job.spec().tables())
    if (table.kind() == TableConfig::SPARSE) sums.Add()->set_name(table.name());
  for (const uint64_t id : job.pservers.members()) {
    const Member* member = members.ById(id);
    const HostedJob* hosted = member == nullptr ? nullptr : HostedOf(job, *member);
    if (hosted == nullptr) continue;
    for (const TableStatus& table : hosted->tables()) {
      const auto sum = std::find_if(sums.begin(), sums.end(), [&](const TableStatus& one) {
        return one.name() == table.name();
      });
      if (sum != sums.end()) AddShards(table, &*sum);
    }
  }
  return sums;
}

// Names the ranks that have not ended the phase while others wait for them.
std::string UnfinishedRanks(const Job& job, const Membership& members) {
  const std::vector<uint32_t> ranks = job.run()->phases().Missing();
  // All of them still work: nobody waits for anybody.
  if (ranks.empty() || ranks.size() == job.ranks.slots().size()) return "";
  return DescribeMissing(job, ranks, members);
}

// Says which rank kept the others waiting most, by the pserver that saw the longest wait (sync),
// and what the job waits for now. That pserver is asked first, then another one: a worker that
// stopped between two commits is missed only by the second pserver. Otherwise ranks that have not
// ended the phase are named.
std::string SlowestAndWaits(const Job& job, const Membership& members) {
  const HostedJob* worst = nullptr;
  const HostedJob* waiting = nullptr;
  for (const uint64_t id : job.pservers.members()) {
    const Member* member = members.ById(id);
    if (member == nullptr) continue;
    const HostedJob* hosted = HostedOf(job, *member);
    if (hosted == nullptr) continue;
    if (worst == nullptr || hosted->slowest_wait_s() > worst->slowest_wait_s()) worst = hosted;
    if (!hosted->waiting_for().empty()) waiting = hosted;
  }
  // The pserver that waited longest knows best whom the job waits for.
  if (worst != nullptr && !worst->waiting_for().empty()) waiting = worst;
  std::vector<std::string> said;
  if (worst != nullptr && worst->slowest_wait_s() > 0 &&
      worst->slowest_rank() < job.ranks.slots().size()) {
    said.push_back(absl::StrFormat("slowest: %s, the others waited %.1f s for it",
                                   DescribeRank(job, worst->slowest_rank(), members),
                                   worst->slowest_wait_s()));
  }
  const std::string now =
      waiting != nullptr ? waiting->waiting_for() : UnfinishedRanks(job, members);
  if (!now.empty()) said.push_back("waits for " + now);
  return absl::StrJoin(said, "; ");
}

// " (12.0 of 34.5 MiB of initial_model read)", or nothing.
std::string ReadOfModel(const Job& job, const HostedJob& hosted) {
  constexpr double kMiB = 1 << 20;
  if (hosted.load_bytes() == 0) return "";
  return absl::StrFormat(
      " (%.1f of %.1f MiB of %s read)", hosted.loaded_bytes() / kMiB, hosted.load_bytes() / kMiB,
      job.spec().has_restore() || job.spec().has_takeover() ? "the checkpoint" : "initial_model");
}

// Names the ranks whose workers are lost and who have no other one yet.
std::string VacantRanks(const Job& job) {
  std::vector<std::string> said;
  for (const auto& [rank, vacancy] : job.ranks.vacant()) {
    if (job.ranks.removal()) {
      said.push_back(absl::StrCat(job.ranks.removal()->ranks.count(rank) > 0
                                      ? "prepares to continue without rank "
                                      : "prepares to wait for a worker as rank ",
                                  rank, " (", vacancy.why, ")"));
      continue;
    }
    const RankSlot& slot = job.ranks.slots()[rank];
    said.push_back(
        slot.member_id() == 0
            ? absl::StrCat("waits for a worker to take over rank ", rank, " (", vacancy.why, ")")
            : absl::StrCat("gives rank ", rank, " to worker ", slot.worker()));
  }
  return absl::StrJoin(said, "; ");
}

// Names what the shards of lost pservers wait for.
std::string VacantPservers(const Job& job, const Membership& members) {
  std::vector<std::string> said;
  for (const auto& [index, vacancy] : job.pservers.vacant()) {
    const Member* const member = members.ById(job.pservers.members()[index]);
    const HostedJob* const hosted = member == nullptr ? nullptr : HostedOf(job, *member);
    if (member == nullptr) {
      said.push_back(absl::StrCat("waits for pserver ", job.pservers.ranks()[index],
                                  " to register (", vacancy.why, ")"));
    } else if (!vacancy.opened) {
      said.push_back(absl::StrCat("waits for ", DescribeMember(*member),
                                  hosted == nullptr ? "" : ReadOfModel(job, *hosted),
                                  " to open the tables"));
    } else if (hosted != nullptr && hosted->awaited_ranks_size() > 0) {
      said.push_back(absl::StrCat("waits for ",
                                  DescribeRank(job, hosted->awaited_ranks(0), members),
                                  " to reach ", DescribeMember(*member)));
    }
  }
  return absl::StrJoin(said, "; ");
}

std::string WaitingFor(const Job& job, const Membership& members) {
  if (job.over()) {
    return job.course.away().empty()
               ? ""
               : absl::StrCat("the place of its output, to write the result: ", job.course.away());
  }
  if (job.state() == JOB_QUEUED || job.awaits_members()) return job.course.message();
  std::vector<std::string> missing;
  if (job.opening_tables()) {
    for (const uint64_t id : job.pservers.members()) {
      const Member* member = members.ById(id);
      if (member == nullptr || HasOpened(job, *member)) continue;
      const HostedJob* hosted = HostedOf(job, *member);
      missing.push_back(absl::StrCat(DescribeMember(*member),
                                     hosted == nullptr ? "" : ReadOfModel(job, *hosted)));
    }
    if (missing.empty() && !job.attempt.opening().output_ready()) {
      return absl::StrCat("the scheduler to prepare output_dir ", job.config().output_dir());
    }
    return missing.empty() ? ""
                           : absl::StrCat(absl::StrJoin(missing, " and "), " to open the tables");
  }
  std::vector<std::string> vacant = {VacantPservers(job, members), VacantRanks(job)};
  vacant.erase(std::remove(vacant.begin(), vacant.end(), ""), vacant.end());
  return vacant.empty() ? SlowestAndWaits(job, members) : absl::StrJoin(vacant, "; ");
}

void AddProgress(const Job& job, const Membership& members, JobStatus* status) {
  const Phase& phase = job.run()->phases().current();
  const JobResult& result = job.run()->result();
  const bool training = phase.kind() == Phase::TRAIN;
  uint64_t in_epoch = 0;
  double loss = 0;
  uint32_t losses = 0;
  for (const WorkerProgress* progress : Progress(job, members)) {
    *status->add_workers() = *progress;
    // A report may be of the epoch before, whose examples are in the result already.
    if (!training || progress->epoch() != phase.epoch() + 1) continue;
    in_epoch += progress->examples();
    // A worker has no mean loss before its first log_every steps.
    if (progress->loss() == 0) continue;
    loss += progress->loss();
    ++losses;
  }
  if (!job.config().evaluate_only()) status->set_epoch(phase.epoch() + 1);
  status->set_phase(PhaseName(phase.kind()));
  // Between phases the workers report no step, and the shown one must not fall back.
  status->set_global_step(std::max(GlobalStep(job, members), result.global_step()));
  const auto& epochs = job.run()->epochs();
  if (!training && !epochs.empty()) in_epoch = epochs[epochs.size() - 1].examples();
  status->set_examples_in_epoch(in_epoch);
  status->set_examples(result.examples() + (training ? in_epoch : 0));
  status->set_examples_expected(job.run()->examples_expected());
  status->set_examples_per_second(ExamplesPerSecond(job, members));
  if (losses > 0) {
    status->set_loss(loss / losses);
  } else if (!epochs.empty()) {
    status->set_loss(epochs[epochs.size() - 1].loss());
  }
}

// A status is made ten times a second, so it has only these, however many a job has.
constexpr int kNewestEpochs = JobCourse::kEpochsKept;
// For a caller that has seen fewer, as many as it asks for, but not more at a time.
constexpr int kMostEpochs = 1000;

void AddNewestEpochs(const google::protobuf::RepeatedPtrField<EpochResult>& epochs,
                     std::optional<uint32_t> seen, JobStatus* status) {
  const int n = epochs.size();
  int first = std::max(0, n - kNewestEpochs);
  // The log is in the order of the epochs.
  while (seen.has_value() && first > 0 && epochs[first - 1].epoch() > *seen) --first;
  for (int i = first; i < std::min(n, first + kMostEpochs); ++i)
    *status->add_epochs_log() = epochs[i];
}

// The warnings of the submission come first.
google::protobuf::RepeatedPtrField<std::string> WarningsOf(const Job& job) {
  google::protobuf::RepeatedPtrField<std::string> warnings(job.warnings().begin(),
                                                           job.warnings().end());
  if (job.run()) warnings.MergeFrom(job.run()->result().warnings());
  return warnings;
}

// Seconds of training left at the present speed; 0: not known.
double Eta(const JobStatus& status) {
  const double speed = status.examples_per_second();
  if (speed <= 0 || status.examples_expected() == 0) return 0;
  const double all = static_cast<double>(status.examples_expected()) * status.epochs();
  return std::max(0.0, all - static_cast<double>(status.examples())) / speed;
}

}  // namespace

std::string DescribeRanks(const Job& job, const std::vector<uint32_t>& ranks,
                          const Membership& members) {
  // A line for people: with hundreds of ranks, the first few say enough.
  constexpr size_t kNamed = 8;
  std::vector<std::string> names;
  for (size_t i = 0; i < ranks.size() && i < kNamed; ++i)
    names.push_back(DescribeRank(job, ranks[i], members));
  if (ranks.size() > kNamed) names.push_back(absl::StrCat(ranks.size() - kNamed, " more"));
  return absl::StrJoin(names, " and ");
}

std::string DescribeMissing(const Job& job, const std::vector<uint32_t>& ranks,
                            const Membership& members) {
  return absl::StrCat(DescribeRanks(job, ranks, members), " to end phase ",
                      PhaseName(job.run()->phases().current().kind()));
}

JobStatus MakeJobStatus(const Job& job, const Membership& members,
                        std::optional<uint32_t> seen_epochs) {
  // An archived job no longer has what is read below.
  if (job.archived()) return *job.archived();
  JobStatus status;
  status.set_job_id(job.id());
  status.set_version(job.status_version());
  status.set_state(job.state());
  status.set_message(job.course.message());
  status.set_worker_num(job.spec().worker_num());
  for (const RankSlot& slot : job.ranks.slots()) {
    const Member* member = members.ById(slot.member_id());
    status.set_workers_alive(status.workers_alive() + (member != nullptr && member->alive));
    status.add_allocated(slot.worker());
  }
  status.set_mode(ModeName(ModeOf(job.config().strategy())));
  status.set_epochs(job.config().evaluate_only() ? 0 : job.config().train().epochs());
  if (job.run()) {
    AddProgress(job, members, &status);
    AddNewestEpochs(job.run()->epochs(), seen_epochs, &status);
    status.set_eta_s(job.over() ? 0 : Eta(status));
    *status.mutable_staleness() = SumStaleness(job, members);
  } else if (job.attempt.before()) {
    status.set_global_step(job.attempt.before()->global_step());
    status.set_examples(job.attempt.before()->examples());
    AddNewestEpochs(job.attempt.before()->epochs_log(), seen_epochs, &status);
  }
  *status.mutable_recovery() = job.recovery.counts();
  status.mutable_recovery()->clear_events();  // watchers get the status many times
  if (job.checkpoints()) {
    *status.mutable_checkpoint() = job.checkpoints()->status();
    if (auto exports = job.checkpoints()->export_status())
      *status.mutable_export_() = *std::move(exports);
  }
  *status.mutable_warnings() = WarningsOf(job);
  *status.mutable_route() = job.spec().route();
  status.set_waiting_for(WaitingFor(job, members));
  status.set_queue_position(job.course.queue_position());
  *status.mutable_config() = job.config();
  if (job.course.written()) {
    *status.mutable_result() = job.course.result();
    *status.mutable_staleness() = job.course.result().staleness();
    status.set_global_step(job.course.result().global_step());
    status.clear_examples_per_second();
  }
  return status;
}

void ArchiveJob(Job* job, const Membership& members) {
  JobStatus status = MakeJobStatus(*job, members);
  status.clear_route();
  status.clear_workers();
  JobConfig* config = status.mutable_config();
  // The largest fields. Nobody asks for the model of an old job by its status.
  config->clear_features();
  config->clear_model();
  config->clear_tables();
  job->Archive(std::move(status));
}

// The report of this life of a rank in `epoch` of the progress, which counts from 1; null: it has
// not reported any of it. A report may be of the epoch before, which is in the result already.
const WorkerProgress* ReportOf(const Job& job, const Membership& members, const RankSlot& slot,
                               uint32_t epoch) {
  const Member* const member = members.ById(slot.member_id());
  if (member == nullptr || !IsOfLife(job, slot, member->progress)) return nullptr;
  return member->progress.epoch() == epoch ? &member->progress : nullptr;
}

// Sync: the examples of the steps that a rank has made since its last report, which may be some
// heartbeats old, or of its worker's earlier life. The ranks train the same steps, so this one has
// made all up to `newest`. `reported`: of this epoch; null: nothing. `usual`: examples of a step
// of a rank that has reported none.
uint64_t ExamplesSince(const Job& job, const WorkerProgress* reported, uint64_t newest,
                       double usual) {
  const uint64_t first = job.run()->result().global_step();
  const uint64_t known = reported == nullptr ? first : std::max(reported->step(), first);
  if (newest <= known) return 0;
  // The batches of a program may have any size.
  const double of_step =
      reported != nullptr && known > first
          ? static_cast<double>(reported->examples()) / static_cast<double>(known - first)
          : usual;
  return static_cast<uint64_t>(std::llround(of_step * static_cast<double>(newest - known)));
}

// Sync: examples of a step of a rank whose own size is not known: those of the job, or, where a
// program gives the data, those of the other ranks that have reported the epoch.
double UsualExamples(const Job& job, const Membership& members, uint32_t epoch) {
  if (!ProgramGivesData(job.config())) return static_cast<double>(StepExamples(job.config()));
  const uint64_t first = job.run()->result().global_step();
  double examples = 0, steps = 0;
  for (const RankSlot& slot : job.ranks.slots()) {
    const WorkerProgress* const progress = ReportOf(job, members, slot, epoch);
    if (progress == nullptr || progress->step() <= first) continue;
    examples += static_cast<double>(progress->examples());
    steps += static_cast<double>(progress->step() - first);
  }
  return steps == 0 ? 0 : examples / steps;
}

// Adds the epoch in which the job has ended, as its workers have reported it.
void AddUnfinishedEpoch(const Job& job, const Membership& members, JobResult* result) {
  const std::optional<absl::Time> since = job.run()->training_since();
  if (!since) return;
  const uint32_t epoch = job.run()->phases().current().epoch();
  const bool sync = ModeOf(job.config().strategy()) == Mode::kSync;
  const uint64_t newest = GlobalStep(job, members);
  const double usual = sync ? UsualExamples(job, members, epoch + 1) : 0;
  for (const RankSlot& slot : job.ranks.slots()) {
    const WorkerProgress* const progress = ReportOf(job, members, slot, epoch + 1);
    if (sync)
      result->set_examples(result->examples() + ExamplesSince(job, progress, newest, usual));
    if (progress == nullptr) continue;
    result->set_examples(result->examples() + progress->examples());
    // Every pass meets the same bad lines, so only the first pass counts them.
    if (epoch == 0) result->set_bad_lines(result->bad_lines() + progress->bad_lines());
  }
  result->set_global_step(std::max(GlobalStep(job, members), result->global_step()));
  const double seconds = absl::ToDoubleSeconds(job.course.ended_at() - *since);
  result->set_seconds(result->seconds() + std::max(seconds, 0.0));
  if (result->seconds() > 0) {
    result->set_examples_per_second(static_cast<double>(result->examples()) / result->seconds());
  }
}

JobResult MakeJobResult(const Job& job, const Membership& members) {
  JobResult result;
  if (job.run()) {
    result = job.run()->ResultWithEpochs();
    if (job.course.outcome() != JOB_DONE) AddUnfinishedEpoch(job, members, &result);
    *result.mutable_staleness() = SumStaleness(job, members);
    *result.mutable_tables() = SumTables(job, members);
  } else {
    // A job that never ran has a result as well, with all figures at 0.
    result = job.attempt.before() ? *job.attempt.before() : JobResults(job.config(), 0).result();
    // The attempt that was lost has come this far, also in an epoch that was not over.
    result.set_examples(std::max(result.examples(), job.recovery.examples_reached()));
    result.set_global_step(std::max(result.global_step(), job.recovery.steps_reached()));
  }
  result.set_resumed_from(job.submission().resumed_from);
  *result.mutable_recovery() = job.recovery.counts();
  result.set_examples_replayed(result.examples_replayed() +
                               job.recovery.counts().examples_replayed());
  if (job.checkpoints()) {
    *result.mutable_checkpoint() = job.checkpoints()->status();
    result.mutable_checkpoint()->clear_doing();
  }
  // A saved model is committed only when its job is done.
  if (job.course.outcome() != JOB_DONE) {
    result.clear_model_dir();
    result.clear_model_digest();
  }
  *result.mutable_warnings() = WarningsOf(job);
  if (job.course.outcome() == JOB_DONE) {
    for (std::string& warning : WarningsOfOutcome(job.config(), result))
      result.add_warnings(std::move(warning));
  }
  result.set_job(job.id());
  result.set_status(StatusWord(job.course.outcome()));
  result.set_message(job.course.message());
  return result;
}

MemberStatus MakeMemberStatus(const Member& member, absl::Time now) {
  MemberStatus status;
  status.set_role(member.self.role());
  status.set_rank(member.self.rank());
  status.set_address(member.self.address());
  status.set_host(member.self.host());
  status.set_pid(member.self.pid());
  status.set_admin_address(member.self.admin_address());
  status.set_log_file(member.self.log_file());
  status.set_device(member.self.device());
  status.set_alive(member.alive);
  status.set_last_seen_s(absl::ToDoubleSeconds(now - member.last_seen));
  status.set_job_id(member.job_id);
  status.set_job_rank(member.progress.rank());
  status.set_doing(member.alive ? member.progress.doing() : member.why_gone);
  status.set_memory_bytes(member.memory_bytes);
  status.set_cpu_seconds(member.cpu_seconds);
  status.set_draining(member.draining);
  if (member.self.role() == ROLE_PSERVER) *status.mutable_streams() = member.streams;
  for (const auto& [job_id, hosted] : member.hosted) *status.add_hosted() = hosted;
  return status;
}

}  // namespace sluice
