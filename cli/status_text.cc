#include "cli/status_text.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/checkpoint_text.h"
#include "cli/epoch_table.h"
#include "cli/progress.h"
#include "common/daemon/hot_row_use.h"
#include "common/daemon/identity.h"

namespace sluice::cli {
namespace {

std::string OrDash(const std::string& text) { return text.empty() ? "-" : text; }

std::string MemberLine(const MemberStatus& m) {
  std::string job = m.job_id().empty() ? "" : absl::StrCat(m.job_id(), " rank ", m.job_rank());
  if (m.role() == ROLE_PSERVER) {
    std::vector<std::string> jobs;
    for (const HostedJob& hosted : m.hosted()) jobs.push_back(hosted.job_id());
    job = absl::StrJoin(jobs, ",");
  }
  return absl::StrFormat("  %-9s %4d  %-5s %-22s %-14s %7d  %-22s %10s  %-7s %s%s\n",
                         RoleName(m.role()), m.rank(),
                         !m.alive()     ? "DEAD"
                         : m.draining() ? "drain"
                                        : "alive",
                         OrDash(m.address()), OrDash(m.host()), m.pid(), OrDash(m.admin_address()),
                         ByteCount(m.memory_bytes()), OrDash(m.device()), OrDash(job),
                         m.doing().empty() ? "" : ": " + m.doing());
}

// Formats the job's tables, summed over the pservers that host it, and what each pserver waits for.
std::string TablesOf(const ClusterStatus& status, const JobStatus& job) {
  std::map<std::string, TableStatus> tables;
  std::string text;
  for (const MemberStatus& member : status.members()) {
    for (const HostedJob& hosted : member.hosted()) {
      if (hosted.job_id() != job.job_id()) continue;
      for (const TableStatus& t : hosted.tables()) {
        TableStatus& sum = tables[t.name()];
        sum.set_kind(t.kind());
        sum.set_shards(sum.shards() + t.shards());
        sum.set_rows(sum.rows() + t.rows());
        sum.set_bytes(sum.bytes() + t.bytes());
        sum.set_reserved_bytes(sum.reserved_bytes() + t.reserved_bytes());
      }
      const std::string pserver = absl::StrCat("    pserver ", member.rank());
      if (!hosted.error().empty())
        absl::StrAppend(&text, pserver, " failed: ", hosted.error(), "\n");
      if (!hosted.waiting_for().empty())
        absl::StrAppend(&text, pserver, " waits for ", hosted.waiting_for(), "\n");
      if (hosted.slowest_wait_s() > 0) {
        absl::StrAppend(
            &text, pserver,
            absl::StrFormat(": slowest worker is rank %d; the others waited %.1f s for it\n",
                            hosted.slowest_rank(), hosted.slowest_wait_s()));
      }
    }
  }
  std::string rows;
  for (const auto& [name, t] : tables) {
    absl::StrAppendFormat(
        &rows, "    table %-24s %-6s %4d %-6s %14s %-8s %10s, %s reserved\n", name,
        t.kind() == TableConfig::SPARSE ? "sparse" : "dense", t.shards(),
        t.shards() == 1 ? "shard" : "shards", WithCommas(t.rows()),
        absl::StrCat(t.kind() == TableConfig::SPARSE ? "row" : "element", t.rows() == 1 ? "" : "s"),
        ByteCount(t.bytes()), ByteCount(t.reserved_bytes()));
  }
  return rows + text;
}

// Formats where a worker's time went in this job, and how full its queue of batches is.
std::string StagesOf(const WorkerProgress& worker) {
  const StageSeconds& s = worker.stages();
  std::string text = absl::StrFormat(
      "      read %.1f s, dedup %.1f s, pull wait %.1f s, compute %.1f s, push wait %.1f s",
      s.read(), s.dedup(), s.pull_wait(), s.compute(), s.push_wait());
  if (worker.batches_capacity() > 0) {
    absl::StrAppend(&text, ", ", worker.batches_ready(), " of ", worker.batches_capacity(),
                    " batches ready");
  }
  if (worker.has_device()) {
    const DeviceUse& d = worker.device();
    absl::StrAppend(&text, ", GPU ",
                    absl::StrFormat("%.0f%% busy, holds %s of %s", 100 * d.busy_share(),
                                    ByteCount(d.bytes_in_use()), ByteCount(d.bytes_limit())));
    if (worker.step() > 0) {
      absl::StrAppend(&text, ", ", WithCommas(d.steps_ahead()), " of ", WithCommas(worker.step()),
                      " batches uploaded ahead", d.no_room_ahead() ? " (no room for more)" : "");
    }
    if (d.skipped_steps() > 0)
      absl::StrAppend(&text, ", ", Counted(d.skipped_steps(), "step"), " skipped (fp16)");
  }
  if (worker.has_hot_rows()) absl::StrAppend(&text, ", ", Describe(worker.hot_rows()));
  return text + "\n";
}

std::string JobText(const ClusterStatus& status, const JobStatus& job) {
  std::string text = absl::StrCat("  ", LiveLine(job, 500));
  if (!job.mode().empty()) absl::StrAppend(&text, " | mode ", job.mode());
  absl::StrAppend(&text, "\n");
  if (job.state() == JOB_QUEUED) {
    absl::StrAppend(&text, "    place ", job.queue_position() + 1, " in the queue; asks for ",
                    Counted(job.worker_num(), "worker"), "\n");
  }
  if (job.allocated_size() > 0) {
    absl::StrAppend(&text, "    runs on workers ", absl::StrJoin(job.allocated(), ", "), "\n");
  }
  if (!HasEnded(job.state())) {
    if (job.state() == JOB_RUNNING && !job.waiting_for().empty()) {
      absl::StrAppend(&text, "    ", WaitText(job.waiting_for()), "\n");
    }
    const std::string checkpoints = DescribeCheckpoints(job.checkpoint());
    if (!checkpoints.empty()) absl::StrAppend(&text, "    ", checkpoints, "\n");
    if (!job.recovery().last().empty())
      absl::StrAppend(&text, "    recovery: ", job.recovery().last(), "\n");
    for (const WorkerProgress& worker : job.workers()) {
      absl::StrAppend(&text, "    ", WorkerLine(worker),
                      worker.doing().empty() ? "" : ", " + worker.doing(), "\n");
      absl::StrAppend(&text, StagesOf(worker));
    }
    absl::StrAppend(&text, TablesOf(status, job));
  } else if (job.result().eval().examples() > 0) {
    absl::StrAppendFormat(&text, "    AUC %s log loss %.5f accuracy %.5f\n",
                          AucText(job.result().eval(), 5), job.result().eval().log_loss(),
                          job.result().eval().accuracy());
  }
  for (const std::string& warning : job.warnings())
    absl::StrAppend(&text, "    warning: ", warning, "\n");
  return text;
}

}  // namespace

std::string StatusText(const ClusterStatus& status) {
  std::string text = absl::StrCat("cluster ", status.name(), ", up ",
                                  ShortDuration(status.uptime_s()), "\n\nmembers\n");
  absl::StrAppendFormat(&text, "  %-9s %4s  %-5s %-22s %-14s %7s  %-22s %10s  %-7s %s\n", "role",
                        "rank", "state", "address", "host", "pid", "admin", "memory", "device",
                        "jobs");
  for (const MemberStatus& member : status.members()) absl::StrAppend(&text, MemberLine(member));
  absl::StrAppend(&text, "\njobs\n");
  if (status.jobs().empty()) absl::StrAppend(&text, "  none\n");
  for (const JobStatus& job : status.jobs()) absl::StrAppend(&text, JobText(status, job));
  return text;
}

}  // namespace sluice::cli
