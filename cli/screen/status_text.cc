#include "cli/screen/status_text.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/screen/checkpoint_text.h"
#include "cli/screen/format.h"
#include "cli/screen/progress.h"
#include "common/base/message_text.h"
#include "common/daemon/hot_row_use.h"
#include "common/daemon/identity.h"
#include "common/daemon/table_rows.h"

namespace sluice::cli {
namespace {

std::string OrDash(const std::string& text) { return text.empty() ? "-" : text; }

const char* const kRed = "31";
const char* const kGreen = "32";
const char* const kYellow = "33";

// Writes the texts of one status.
class StatusWriter {
 public:
  explicit StatusWriter(bool colours) : colours_(colours) {}

  std::string Colour(const std::string& text, const char* code) const {
    return colours_ ? absl::StrCat("\x1b[", code, "m", text, "\x1b[0m") : text;
  }

  // Leaves out the part in brackets that was said before: all workers that wait for one pserver
  // have the same error.
  std::string ErrorOnce(const std::string& doing) {
    constexpr size_t kShort = 20;
    const size_t begin = doing.find(" ("), end = doing.rfind(')');
    if (begin == std::string::npos || end == std::string::npos || end < begin + kShort)
      return doing;
    const std::string error = doing.substr(begin, end + 1 - begin);
    return said_.insert(error).second ? doing : doing.substr(0, begin) + doing.substr(end + 1);
  }

 private:
  const bool colours_;
  std::set<std::string> said_;
};

// How workers reach a pserver; "" without streams.
std::string StreamsOf(const StreamCounts& streams) {
  std::vector<std::string> parts;
  if (streams.shm() > 0) parts.push_back(absl::StrCat(streams.shm(), " shm"));
  if (streams.grpc() > 0) parts.push_back(absl::StrCat(streams.grpc(), " grpc"));
  return absl::StrJoin(parts, ", ");
}

// ":9001" of an admin port on loopback, which is the usual case; others whole.
std::string ShortAdmin(const std::string& address) {
  constexpr absl::string_view kLoopback = "127.0.0.1";
  return absl::StartsWith(address, kLoopback) ? address.substr(kLoopback.size()) : OrDash(address);
}

using Row = std::vector<std::string>;

// Aligns the first column to the left and the others to the right.
std::string Line(const Row& row, const std::vector<size_t>& widths, size_t gap) {
  std::string line = row[0] + std::string(widths[0] - row[0].size(), ' ');
  for (size_t c = 1; c < row.size(); ++c)
    absl::StrAppend(&line, std::string(gap + widths[c] - row[c].size(), ' '), row[c]);
  return line + "\n";
}

// Columns as wide as their widest cell. Those in `right` are aligned to the right.
std::string Columns(const std::vector<Row>& rows, const std::set<size_t>& right) {
  std::vector<size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line = " ";
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string blanks(widths[c] - row[c].size(), ' ');
      absl::StrAppend(&line, " ", right.count(c) > 0 ? blanks + row[c] : row[c] + blanks);
    }
    absl::StrAppend(&text, line.substr(0, line.find_last_not_of(' ') + 1), "\n");
  }
  return text;
}

std::string MembersText(const ClusterStatus& status, StatusWriter* writer) {
  std::vector<const MemberStatus*> members;
  if (status.has_scheduler()) members.push_back(&status.scheduler());
  for (const MemberStatus& member : status.members()) members.push_back(&member);
  std::vector<Row> rows = {{"role", "rank", "state", "address", "admin", "pid", "memory", "runs"}};
  for (const MemberStatus* m : members) {
    // A worker listens nowhere, so its host says where it is.
    const std::string where = m->address().empty() ? m->host() : m->address();
    std::string runs = m->role() == ROLE_PSERVER ? StreamsOf(m->streams()) : m->device();
    if (!m->job_id().empty())
      absl::StrAppend(&runs, runs.empty() ? "" : " ", m->job_id(), " rank ", m->job_rank());
    rows.push_back({RoleName(m->role()), absl::StrCat(m->rank()),
                    !m->alive()     ? "DEAD"
                    : m->draining() ? "drain"
                                    : "alive",
                    OrDash(where), ShortAdmin(m->admin_address()), absl::StrCat(m->pid()),
                    ByteCount(m->memory_bytes()), OrDash(runs)});
  }
  const std::vector<std::string> lines =
      absl::StrSplit(Columns(rows, {1, 5, 6}), '\n', absl::SkipEmpty());
  std::string text = lines[0] + "\n";
  for (size_t i = 0; i < members.size(); ++i) {
    const MemberStatus& m = *members[i];
    absl::StrAppend(&text, m.alive() ? lines[i + 1] : writer->Colour(lines[i + 1], kRed), "\n");
    // The jobs say what their workers do.
    if (m.job_id().empty() && !m.doing().empty() && m.doing() != "idle")
      absl::StrAppend(&text, "      ", writer->ErrorOnce(m.doing()), "\n");
  }
  return text;
}

// Formats the job's tables, summed over the pservers that host it, and what each pserver waits for.
// Without `each`, all dense tables have one line.
std::string TablesOf(const ClusterStatus& status, const JobStatus& job, bool each) {
  std::map<std::string, TableStatus> tables;
  TableStatus dense;
  size_t dense_tables = 0;
  std::string text;
  for (const MemberStatus& member : status.members()) {
    for (const HostedJob& hosted : member.hosted()) {
      if (hosted.job_id() != job.job_id()) continue;
      for (const TableStatus& t : hosted.tables()) {
        // Each pserver reports its own shards; people ask for the table.
        AddShards(t, &tables[t.name()]);
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
  std::vector<Row> rows;
  const auto add = [&rows](const std::string& name, const TableStatus& t) {
    const bool sparse = t.kind() == TableConfig::SPARSE;
    std::string bytes = ByteCount(t.bytes());
    if (ByteCount(t.reserved_bytes()) != bytes)
      absl::StrAppend(&bytes, ", ", ByteCount(t.reserved_bytes()), " reserved");
    rows.push_back({"", name, sparse ? "sparse" : "dense", Counted(t.shards(), "shard"),
                    Counted(t.rows(), sparse ? "row" : "element"), bytes});
  };
  for (const auto& [name, t] : tables) {
    if (each || t.kind() == TableConfig::SPARSE) {
      add("table " + name, t);
      continue;
    }
    ++dense_tables;
    AddShards(t, &dense);
  }
  if (dense_tables > 0) add(Counted(dense_tables, "table"), dense);
  std::string turnover;
  for (const auto& [name, t] : tables) {
    if (const std::string described = DescribeRows(t); !described.empty())
      absl::StrAppend(&turnover, "      table ", name, ": ", described, "\n");
  }
  return Columns(rows, {3, 4}) + turnover + text;
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

std::string JobText(const ClusterStatus& status, const JobStatus& job, bool each_table,
                    StatusWriter* writer) {
  // Wide enough for every figure: this text is not rewritten in place.
  std::string text = absl::StrCat("  ", LiveLine(job, 500));
  if (!job.mode().empty()) absl::StrAppend(&text, " | mode ", job.mode());
  if (job.state() == JOB_FAILED) text = writer->Colour(text, kRed);
  if (job.state() == JOB_DONE) text = writer->Colour(text, kGreen);
  absl::StrAppend(&text, "\n");
  if (job.state() == JOB_QUEUED) {
    absl::StrAppend(&text, "    place ", job.queue_position() + 1, " in the queue; asks for ",
                    Counted(job.worker_num(), "worker"), "\n");
  }
  if (job.allocated_size() > 0) {
    absl::StrAppend(&text, "    runs on workers ", absl::StrJoin(job.allocated(), ", "), "\n");
  }
  if (!HasEnded(job.state())) {
    const bool waits = job.state() == JOB_RUNNING && !job.waiting_for().empty();
    if (waits) {
      absl::StrAppend(&text, "    ",
                      writer->Colour(writer->ErrorOnce(WaitText(job.waiting_for())), kYellow),
                      "\n");
    }
    const std::string checkpoints = DescribeCheckpoints(job.checkpoint());
    if (!checkpoints.empty()) absl::StrAppend(&text, "    ", checkpoints, "\n");
    const std::string exports = DescribeExports(job.export_());
    if (!exports.empty()) absl::StrAppend(&text, "    ", exports, "\n");
    if (!job.recovery().last().empty())
      absl::StrAppend(&text, "    recovery: ", job.recovery().last(), "\n");
    for (const WorkerProgress& worker : job.workers()) {
      const auto rank = static_cast<int>(worker.rank());
      absl::StrAppend(&text, "    ",
                      WorkerLine(worker, rank < job.allocated_size()
                                             ? std::optional<uint32_t>(job.allocated(rank))
                                             : std::nullopt),
                      worker.doing().empty() ? "" : ", " + writer->ErrorOnce(worker.doing()), "\n");
      absl::StrAppend(&text, StagesOf(worker));
    }
    absl::StrAppend(&text, TablesOf(status, job, each_table));
  } else if (job.result().eval().examples() > 0) {
    absl::StrAppendFormat(&text, "    AUC %s, log loss %.5f, accuracy %.5f\n",
                          AucText(job.result().eval(), 5), job.result().eval().log_loss(),
                          job.result().eval().accuracy());
  }
  for (const std::string& warning : job.warnings())
    absl::StrAppend(&text, "    ", writer->Colour("warning:", kYellow), " ", warning, "\n");
  return text;
}

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

std::string BinningNote(const EvalMetrics& eval) {
  const double error = eval.auc_standard_error(), bound = eval.auc_error_bound();
  if (bound <= (error > 0 ? kBinningMatters * error : kBinningMattersAlone)) return "";
  return absl::StrFormat("note: the AUC is computed in bins, and may be off by %.1e\n", bound);
}

constexpr size_t kNamed = 3;  // features on one line

std::string Percent(uint64_t part, uint64_t whole) {
  return absl::StrFormat("%.1f%%", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

// "missing: age 5.7%, job 0.1%, and 2 more features\n"; "" when all are 0.
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

std::string StatusText(const ClusterStatus& received, bool colours) {
  ClusterStatus status = received;
  MakePrintable(&status);
  StatusWriter writer(colours);
  std::string text =
      absl::StrCat("cluster ", status.name(), ", up ", ShortDuration(status.uptime_s()),
                   "\n\nmembers\n", MembersText(status, &writer), "\njobs\n");
  if (status.jobs().empty()) absl::StrAppend(&text, "  none\n");
  for (const JobStatus& job : status.jobs())
    absl::StrAppend(&text, JobText(status, job, /*each_table=*/false, &writer));
  return text;
}

std::string StatusOfJob(const ClusterStatus& received, const std::string& job_id, bool colours) {
  ClusterStatus status = received;
  MakePrintable(&status);
  StatusWriter writer(colours);
  for (const JobStatus& job : status.jobs()) {
    if (job.job_id() == job_id) return JobText(status, job, /*each_table=*/true, &writer);
  }
  return "";
}

std::string EpochRows::Next(const EpochResult& epoch) {
  const Row row = RowOf(static_cast<int>(epoch.epoch()), epoch);
  const bool first = widths_.empty();
  const Row head = {"epoch",    "examples", "seconds", "loss", "AUC",
                    "log loss", "accuracy", "MAE",     "RMSE"};
  size_t cells = 0;
  // Later rows keep the widths of the first: their figures have as many digits, or nearly so.
  widths_.resize(row.size());
  for (size_t c = 0; c < row.size(); ++c) {
    widths_[c] = std::max({widths_[c], row[c].size(), first ? head[c].size() : size_t{0}});
    cells += widths_[c];
  }
  const size_t gaps = widths_.size() - 1;
  // Large figures get narrower gaps before they would break the width of the table.
  const size_t gap = cells + 2 * gaps <= kTableWidth ? 2 : 1;
  return absl::StrCat(first ? Line(head, widths_, gap) : "", Line(row, widths_, gap),
                      UserMetricsText(epoch.eval(), widths_[0] + gap));
}

std::string AucText(const EvalMetrics& eval, int decimals) {
  return eval.has_auc() ? absl::StrFormat("%.*f", decimals, eval.auc()) : "-";
}

std::string UserMetricText(const NamedValue& metric) {
  return absl::StrCat(metric.name(), " ",
                      std::isfinite(metric.value()) ? Figure(metric.value()) : "-");
}

std::string UserMetricsText(const EvalMetrics& eval, size_t indent) {
  std::string text, line;
  const auto end_line = [&] {
    if (!line.empty()) absl::StrAppend(&text, std::string(indent, ' '), line, "\n");
    line.clear();
  };
  for (int i = 0; i < eval.user_size(); ++i) {
    const std::string metric =
        absl::StrCat(UserMetricText(eval.user(i)), i + 1 < eval.user_size() ? "," : "");
    if (indent + line.size() + 1 + metric.size() > kTableWidth) end_line();
    absl::StrAppend(&line, line.empty() ? "" : " ", metric);
  }
  end_line();
  return text;
}

std::string EvalText(const EvalMetrics& eval) {
  std::string text = absl::StrCat("final: AUC ", AucText(eval, 5));
  if (eval.auc_standard_error() > 0)
    absl::StrAppendFormat(&text, " (standard error %.5f)", eval.auc_standard_error());
  absl::StrAppendFormat(
      &text, " on %s\n  log loss %.5f, accuracy %.5f, MAE %.5f, RMSE %.5f,\n  calibration %.4f\n",
      Counted(eval.examples(), "example"), eval.log_loss(), eval.accuracy(), eval.mae(),
      eval.rmse(), eval.calibration());
  absl::StrAppend(&text, UserMetricsText(eval, /*indent=*/2));
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
