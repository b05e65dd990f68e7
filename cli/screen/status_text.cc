#include "cli/screen/status_text.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/screen/checkpoint_text.h"
#include "cli/screen/format.h"
#include "cli/screen/progress.h"
#include "common/base/message_text.h"
#include "common/daemon/hot_row_use.h"
#include "common/daemon/identity.h"

namespace sluice::cli {
namespace {

std::string OrDash(const std::string& text) { return text.empty() ? "-" : text; }

// How workers reach a pserver; "" without streams.
std::string StreamsOf(const StreamCounts& streams) {
  std::vector<std::string> parts;
  if (streams.shm() > 0) parts.push_back(absl::StrCat(streams.shm(), " shm"));
  if (streams.grpc() > 0) parts.push_back(absl::StrCat(streams.grpc(), " grpc"));
  return parts.empty() ? "" : absl::StrCat("streams: ", absl::StrJoin(parts, ", "));
}

std::string MemberLine(const MemberStatus& m) {
  std::string job = m.job_id().empty() ? "" : absl::StrCat(m.job_id(), " rank ", m.job_rank());
  if (m.role() == ROLE_PSERVER) {
    std::vector<std::string> jobs;
    for (const HostedJob& hosted : m.hosted()) jobs.push_back(hosted.job_id());
    job = absl::StrJoin(jobs, ",");
  }
  const std::string doing = m.doing().empty() && m.alive() ? StreamsOf(m.streams()) : m.doing();
  return absl::StrFormat("  %-9s %4d  %-5s %-22s %-14s %7d  %-22s %10s  %-7s %s%s\n",
                         RoleName(m.role()), m.rank(),
                         !m.alive()     ? "DEAD"
                         : m.draining() ? "drain"
                                        : "alive",
                         OrDash(m.address()), OrDash(m.host()), m.pid(), OrDash(m.admin_address()),
                         ByteCount(m.memory_bytes()), OrDash(m.device()), OrDash(job),
                         doing.empty() ? "" : ": " + doing);
}

// Formats the job's tables, summed over the pservers that host it, and what each pserver waits for.
std::string TablesOf(const ClusterStatus& status, const JobStatus& job) {
  std::map<std::string, TableStatus> tables;
  std::string text;
  for (const MemberStatus& member : status.members()) {
    for (const HostedJob& hosted : member.hosted()) {
      if (hosted.job_id() != job.job_id()) continue;
      for (const TableStatus& t : hosted.tables()) {
        // Each pserver reports its own shards; people ask for the table.
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
      // Names the worker that holds up the others, which is where to look for the cause.
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
  // Wide enough for every figure: this text is not rewritten in place.
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

using Row = std::vector<std::string>;

constexpr uint64_t kMostWithCommas = 999'999'999'999;  // 15 characters
// A binning error below this share of the standard error is negligible.
constexpr double kBinningMatters = 0.1;
// The limit when there is no standard error: half a unit of the fourth decimal.
constexpr double kBinningMattersAlone = 5e-5;

std::string Examples(uint64_t n) {
  return n <= kMostWithCommas ? WithCommas(n) : absl::StrFormat("%.3e", static_cast<double>(n));
}

std::string Seconds(double seconds) {
  return seconds < 1e4   ? absl::StrFormat("%.2f", seconds)
         : seconds < 1e7 ? absl::StrFormat("%.0f", seconds)
                         : absl::StrFormat("%.1e", seconds);
}

// Five decimals, or as many as fit in seven characters.
std::string Figure(double value) {
  constexpr double kLimits[] = {10, 100, 1e3, 1e4, 1e5};
  const double size = std::abs(value);
  for (int i = 0; i < 5; ++i) {
    if (size < kLimits[i]) return absl::StrFormat("%.*f", 5 - i, value);
  }
  return size < 1e7 ? absl::StrFormat("%.0f", value) : absl::StrFormat("%.1e", value);
}

// `number` is the epoch's, counted from 1.
Row RowOf(int number, const EpochResult& e) {
  Row row = {absl::StrCat(number), Examples(e.examples()), Seconds(e.seconds()), Figure(e.loss())};
  const EvalMetrics& eval = e.eval();
  if (eval.examples() == 0) {
    row.insert(row.end(), 5, "-");
    return row;
  }
  row.push_back(eval.has_auc() ? Figure(eval.auc()) : "-");
  for (const double value : {eval.log_loss(), eval.accuracy(), eval.mae(), eval.rmse()})
    row.push_back(Figure(value));
  return row;
}

// Aligns the first column to the left and the others to the right.
std::string Line(const Row& row, const std::vector<size_t>& widths, size_t gap) {
  std::string line = row[0] + std::string(widths[0] - row[0].size(), ' ');
  for (size_t c = 1; c < row.size(); ++c)
    absl::StrAppend(&line, std::string(gap + widths[c] - row[c].size(), ' '), row[c]);
  return line + "\n";
}

std::string BinningNote(const EvalMetrics& eval) {
  const double error = eval.auc_standard_error(), bound = eval.auc_error_bound();
  if (bound <= (error > 0 ? kBinningMatters * error : kBinningMattersAlone)) return "";
  return absl::StrFormat("note: the AUC is computed in bins, and may be off by %.1e\n", bound);
}

constexpr size_t kNamed = 3;  // features on one line

std::string Percent(uint64_t part, uint64_t whole) {
  return absl::StrFormat("%.1f %%", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

// "missing: age 5.7 %, job 0.1 %, and 2 more features\n"; "" when all are 0.
std::string Worst(const std::string& title, std::vector<std::pair<uint64_t, std::string>> features,
                  uint64_t examples) {
  // Stable, so that equal features keep the order of the job.
  std::stable_sort(features.begin(), features.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  while (!features.empty() && features.back().first == 0) features.pop_back();
  if (features.empty()) return "";
  std::vector<std::string> parts;
  for (size_t i = 0; i < std::min(features.size(), kNamed); ++i)
    parts.push_back(absl::StrCat(features[i].second, " ", Percent(features[i].first, examples)));
  if (features.size() > kNamed)
    parts.push_back(absl::StrCat("and ", Counted(features.size() - kNamed, "more feature")));
  return absl::StrCat(title, ": ", absl::StrJoin(parts, ", "), "\n");
}

}  // namespace

std::string StatusText(const ClusterStatus& received) {
  ClusterStatus status = received;
  MakePrintable(&status);
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

std::string EpochTable(const google::protobuf::RepeatedPtrField<EpochResult>& epochs) {
  if (epochs.empty()) return "";
  std::vector<Row> rows = {
      {"epoch", "examples", "seconds", "loss", "AUC", "log loss", "accuracy", "MAE", "RMSE"}};
  for (int i = 0; i < epochs.size(); ++i) rows.push_back(RowOf(i + 1, epochs[i]));
  std::vector<size_t> widths(rows[0].size(), 0);
  size_t cells = 0;
  // Columns are as wide as their widest cell, so that a small job has a small table.
  for (size_t c = 0; c < widths.size(); ++c) {
    for (const Row& row : rows) widths[c] = std::max(widths[c], row[c].size());
    cells += widths[c];
  }
  const size_t gaps = widths.size() - 1;
  // Large figures get narrower gaps before they would break the width of the table.
  const size_t gap = cells + 2 * gaps <= kTableWidth ? 2 : 1;
  std::string text;
  for (const Row& row : rows) text += Line(row, widths, gap);
  return text;
}

std::string AucText(const EvalMetrics& eval, int decimals) {
  return eval.has_auc() ? absl::StrFormat("%.*f", decimals, eval.auc()) : "-";
}

std::string EvalText(const EvalMetrics& eval) {
  std::string text = absl::StrCat("final: AUC ", AucText(eval, 5));
  if (eval.auc_standard_error() > 0)
    absl::StrAppendFormat(&text, " (standard error %.5f)", eval.auc_standard_error());
  absl::StrAppendFormat(
      &text, " on %s\n       log loss %.5f, accuracy %.5f, MAE %.5f, RMSE %.5f, calibration %.4f\n",
      Counted(eval.examples(), "example"), eval.log_loss(), eval.accuracy(), eval.mae(),
      eval.rmse(), eval.calibration());
  if (eval.has_auc()) return text + BinningNote(eval);
  return absl::StrCat(text, "note: the AUC is undefined",
                      eval.auc_undefined().empty() ? "" : absl::StrCat(": ", eval.auc_undefined()),
                      "\n");
}

std::string DataText(const DataSummary& data, const JobConfig& config) {
  if (data.examples() == 0) return "";
  std::string text = absl::StrCat("training data: ", Percent(data.positive(), data.examples()),
                                  " of the examples have label 1\n");
  // The names come from the configuration, by position.
  if (data.features_size() != config.features_size()) return text;
  std::vector<std::pair<uint64_t, std::string>> missing, unknown;
  for (int i = 0; i < data.features_size(); ++i) {
    missing.emplace_back(data.features(i).missing(), config.features(i).name());
    unknown.emplace_back(data.features(i).out_of_vocabulary(), config.features(i).name());
  }
  return absl::StrCat(text, Worst("missing values", std::move(missing), data.examples()),
                      Worst("values outside the vocabulary", std::move(unknown), data.examples()));
}

}  // namespace sluice::cli
