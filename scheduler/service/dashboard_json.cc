#include "scheduler/service/dashboard_json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/printable.h"
#include "common/config/job_config.h"
#include "common/daemon/role_name.h"
#include "scheduler/files/curve_files.h"

namespace sluice {
namespace {

void AppendNumber(double value, std::string* out) {
  // JSON has neither NaN nor infinity.
  if (!std::isfinite(value)) return out->append("null"), void();
  char text[64];
  const auto end = std::to_chars(text, text + sizeof(text), value);
  out->append(text, end.ptr);
}

// Cut without breaking a character.
std::string Cut(const std::string& text, size_t most) {
  if (text.size() <= most) return text;
  size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return absl::StrCat(text.substr(0, end), "...");
}

// Builds {"name":value,...}.
class JsonObject {
 public:
  explicit JsonObject(const DashboardBounds& bounds) : bounds_(bounds) {}
  JsonObject& Raw(const char* name, absl::string_view json) {
    absl::StrAppend(&text_, text_.empty() ? "\"" : ",\"", name, "\":", json);
    return *this;
  }
  JsonObject& Text(const char* name, const std::string& text) {
    return Raw(name, JsonQuoted(PrintableLine(Cut(text, bounds_.text_bytes))));
  }
  JsonObject& Int(const char* name, int64_t value) { return Raw(name, absl::StrCat(value)); }
  JsonObject& Uint(const char* name, uint64_t value) { return Raw(name, absl::StrCat(value)); }
  JsonObject& Bool(const char* name, bool value) { return Raw(name, value ? "true" : "false"); }
  JsonObject& Real(const char* name, double value) {
    std::string text;
    AppendNumber(value, &text);
    return Raw(name, text);
  }
  JsonObject& RealOrNull(const char* name, std::optional<double> value) {
    return value.has_value() ? Real(name, *value) : Raw(name, "null");
  }
  std::string Done() const { return absl::StrCat("{", text_, "}"); }

 private:
  const DashboardBounds& bounds_;
  std::string text_;
};

class JsonList {
 public:
  void Add(absl::string_view json) { absl::StrAppend(&text_, text_.empty() ? "" : ",", json); }
  std::string Done() const { return absl::StrCat("[", text_, "]"); }

 private:
  std::string text_;
};

// JOB_RUNNING is "running".
std::string JobStateWord(JobState state) {
  return absl::AsciiStrToLower(JobState_Name(state).substr(4));
}

const EpochResult* NewestEvaluation(const JobStatus& job) {
  for (int i = job.epochs_log_size() - 1; i >= 0; --i) {
    if (job.epochs_log(i).eval().examples() > 0) return &job.epochs_log(i);
  }
  return nullptr;
}

std::optional<double> AucOf(const EvalMetrics& eval) {
  return eval.has_auc() ? std::optional<double>(eval.auc()) : std::nullopt;
}

void AddSummary(const JobStatus& job, JsonObject* json) {
  const EpochResult* const evaluated = NewestEvaluation(job);
  // A job that only evaluates has its metrics in the result alone.
  const EvalMetrics* const eval = evaluated != nullptr      ? &evaluated->eval()
                                  : job.result().has_eval() ? &job.result().eval()
                                                            : nullptr;
  const CheckpointStatus& checkpoint = job.checkpoint();
  json->Text("job_id", job.job_id()).Text("state", JobStateWord(job.state()));
  json->Text("mode", job.mode()).Text("phase", job.phase());
  json->Text("message", job.message()).Text("waiting_for", job.waiting_for());
  json->Uint("queue_position", job.queue_position());
  json->Uint("worker_num", job.worker_num()).Uint("workers_alive", job.workers_alive());
  json->Uint("epoch", std::min(job.epoch(), job.epochs())).Uint("epochs", job.epochs());
  json->Uint("global_step", job.global_step());
  json->Uint("examples", job.result().examples() > 0 ? job.result().examples() : job.examples());
  json->Real("examples_per_second",
             job.has_result() ? job.result().examples_per_second() : job.examples_per_second());
  json->RealOrNull("loss", job.loss() > 0 ? std::optional<double>(job.loss()) : std::nullopt);
  json->RealOrNull("auc", eval == nullptr ? std::nullopt : AucOf(*eval));
  json->RealOrNull("log_loss",
                   eval == nullptr ? std::nullopt : std::optional<double>(eval->log_loss()));
  json->RealOrNull("eta_s", job.eta_s() > 0 ? std::optional<double>(job.eta_s()) : std::nullopt);
  json->Uint("checkpoint_step", checkpoint.step());
  json->RealOrNull("checkpoint_age_s", checkpoint.age_s() > 0 && !job.has_result()
                                           ? std::optional<double>(checkpoint.age_s())
                                           : std::nullopt);
  json->Uint("checkpoints_made", checkpoint.made()).Uint("checkpoints_failed", checkpoint.failed());
  json->Uint("worker_losses", job.recovery().worker_losses());
  json->Uint("pserver_losses", job.recovery().pserver_losses());
  json->Uint("rollbacks", job.recovery().rollbacks());
  json->Int("warning_count", job.warnings_size());
}

// By job and rank in the job.
using ProgressByRank = std::map<std::pair<std::string, uint32_t>, const WorkerProgress*>;

ProgressByRank AllProgress(const ClusterStatus& status) {
  ProgressByRank all;
  for (const JobStatus& job : status.jobs()) {
    for (const WorkerProgress& worker : job.workers()) all[{job.job_id(), worker.rank()}] = &worker;
  }
  return all;
}

std::string MemberJson(const MemberStatus& member, const ProgressByRank& progress,
                       const DashboardContext& context) {
  const MemberFacts facts = context.facts ? context.facts(member) : MemberFacts();
  JsonObject json(context.bounds);
  json.Text("role", RoleName(member.role())).Uint("rank", member.rank());
  json.Text("address", member.address()).Text("host", member.host()).Uint("pid", member.pid());
  json.Bool("alive", member.alive()).Bool("draining", member.draining());
  json.Real("last_seen_s", std::max(0.0, member.last_seen_s()));
  json.Text("job_id", member.job_id()).Uint("job_rank", member.job_rank());
  json.Text("doing", member.doing()).Text("device", member.device());
  json.Uint("memory_bytes", member.memory_bytes());
  json.RealOrNull("cpu_seconds", member.alive() && member.cpu_seconds() > 0
                                     ? std::optional<double>(member.cpu_seconds())
                                     : std::nullopt);
  json.Text("admin_address", member.admin_address()).Text("log_file", member.log_file());
  json.Raw("log_name", facts.log_name.empty() ? "null" : JsonQuoted(facts.log_name));
  if (member.role() == ROLE_WORKER) {
    const auto mine = progress.find({member.job_id(), member.job_rank()});
    const bool trains = !member.job_id().empty() && mine != progress.end();
    json.RealOrNull(
        "examples_per_second",
        trains ? std::optional<double>(mine->second->examples_per_second()) : std::nullopt);
  }
  if (member.role() == ROLE_PSERVER) {
    uint64_t rows = 0, bytes = 0, updates = 0;
    for (const HostedJob& hosted : member.hosted()) {
      rows += hosted.rows();
      bytes += hosted.bytes();
      updates += hosted.frames_applied();
    }
    json.Uint("rows", rows).Uint("bytes", bytes).Uint("frames_applied", updates);
    json.Uint("streams_grpc", member.streams().grpc()).Uint("streams_shm", member.streams().shm());
  }
  return json.Done();
}

std::string CheckpointJson(const CheckpointStatus& checkpoint, const DashboardBounds& bounds) {
  JsonObject json(bounds);
  json.Uint("step", checkpoint.step()).Real("age_s", checkpoint.age_s());
  json.Uint("bytes", checkpoint.bytes()).Real("seconds", checkpoint.seconds());
  json.Uint("made", checkpoint.made()).Uint("failed", checkpoint.failed());
  json.Text("last_error", checkpoint.last_error()).Text("doing", checkpoint.doing());
  json.Text("dir", checkpoint.dir());
  return json.Done();
}

std::string RecoveryJson(const Recovery& recovery, const DashboardBounds& bounds) {
  JsonObject json(bounds);
  json.Uint("worker_losses", recovery.worker_losses());
  json.Uint("pserver_losses", recovery.pserver_losses());
  json.Uint("scheduler_restarts", recovery.scheduler_restarts());
  json.Uint("rollbacks", recovery.rollbacks()).Uint("shrinks", recovery.shrinks());
  json.Uint("scalings", recovery.scalings());
  json.Uint("examples_replayed", recovery.examples_replayed());
  json.Uint("updates_lost", recovery.updates_lost());
  json.Uint("steps_rolled_back", recovery.steps_rolled_back());
  json.Text("last", recovery.last());
  return json.Done();
}

std::string StalenessSummary(const Staleness& staleness, const DashboardBounds& bounds) {
  JsonObject json(bounds);
  json.Uint("pushes", staleness.pushes());
  json.Real("mean", staleness.pushes() == 0 ? 0
                                            : static_cast<double>(staleness.sum()) /
                                                  static_cast<double>(staleness.pushes()));
  json.Uint("max", staleness.max());
  return json.Done();
}

std::string EpochsJson(const JobStatus& job, const DashboardBounds& bounds) {
  JsonList list;
  for (const EpochResult& epoch : job.epochs_log()) {
    JsonObject json(bounds);
    json.Uint("epoch", epoch.epoch()).Uint("examples", epoch.examples());
    json.Real("seconds", epoch.seconds()).Real("loss", epoch.loss());
    const bool evaluated = epoch.eval().examples() > 0;
    json.RealOrNull("auc", AucOf(epoch.eval()));
    json.RealOrNull("log_loss",
                    evaluated ? std::optional<double>(epoch.eval().log_loss()) : std::nullopt);
    list.Add(json.Done());
  }
  return list.Done();
}

std::string WorkersJson(const JobStatus& job, const DashboardBounds& bounds) {
  JsonList list;
  for (int i = 0; i < std::min(job.workers_size(), bounds.workers); ++i) {
    const WorkerProgress& worker = job.workers(i);
    JsonObject json(bounds);
    json.Uint("rank", worker.rank());
    if (static_cast<int>(worker.rank()) < job.allocated_size())
      json.Uint("worker", job.allocated(static_cast<int>(worker.rank())));
    json.Uint("epoch", worker.epoch()).Uint("step", worker.step());
    json.Uint("examples", worker.examples()).Real("loss", worker.loss());
    json.Real("examples_per_second", worker.examples_per_second()).Text("doing", worker.doing());
    json.Uint("batches_ready", worker.batches_ready());
    json.Uint("batches_capacity", worker.batches_capacity());
    list.Add(json.Done());
  }
  return list.Done();
}

// The parts of a job on its pservers.
struct HostedParts {
  JsonList pservers, shards;
  int rows = 0, left_out = 0;  // of `shards`
  JsonList each;
  int each_rows = 0, each_left_out = 0;
};

HostedParts PartsOf(const ClusterStatus& status, const std::string& job_id,
                    const DashboardBounds& bounds) {
  HostedParts parts;
  for (const MemberStatus& member : status.members()) {
    for (const HostedJob& hosted : member.hosted()) {
      if (hosted.job_id() != job_id) continue;
      JsonObject json(bounds);
      json.Uint("pserver", member.rank()).Bool("alive", member.alive());
      json.Uint("rows", hosted.rows()).Uint("bytes", hosted.bytes());
      json.Uint("frames_applied", hosted.frames_applied());
      json.Raw("staleness", StalenessSummary(hosted.staleness(), bounds));
      json.Text("waiting_for", hosted.waiting_for());
      json.Uint("slowest_rank", hosted.slowest_rank());
      json.Real("slowest_wait_s", hosted.slowest_wait_s());
      json.Uint("updates_lost", hosted.updates_lost()).Text("error", hosted.error());
      parts.pservers.Add(json.Done());
      for (const TableStatus& table : hosted.tables()) {
        if (parts.rows >= bounds.tables) {
          ++parts.left_out;
          continue;
        }
        ++parts.rows;
        JsonObject row(bounds);
        row.Uint("pserver", member.rank()).Text("table", table.name());
        row.Text("kind", absl::AsciiStrToLower(TableConfig::Kind_Name(table.kind())));
        row.Uint("shards", table.shards()).Uint("rows", table.rows());
        row.Uint("bytes", table.bytes()).Uint("reserved_bytes", table.reserved_bytes());
        const RowTurnover& turnover = table.turnover();
        row.Uint("row_limit", table.row_limit()).Uint("rows_admitted", turnover.admitted());
        row.Uint("rows_refused", turnover.refused()).Uint("rows_expired", turnover.expired());
        row.Uint("rows_evicted", turnover.evicted()).Uint("rows_deleted", turnover.deleted());
        parts.shards.Add(row.Done());
        for (const ShardStatus& shard : table.each()) {
          if (parts.each_rows >= bounds.shards) {
            ++parts.each_left_out;
            continue;
          }
          ++parts.each_rows;
          JsonObject one(bounds);
          one.Uint("pserver", member.rank()).Text("table", table.name());
          one.Uint("shard", shard.shard()).Uint("rows", shard.rows());
          one.Uint("bytes", shard.bytes()).Uint("rows_pushed", shard.rows_pushed());
          parts.each.Add(one.Done());
        }
      }
    }
  }
  return parts;
}

}  // namespace

std::string JobsJson(const ClusterStatus& status, const DashboardContext& context) {
  const DashboardBounds& bounds = context.bounds;
  JsonList jobs, members, notes;
  const int first = std::max(0, status.jobs_size() - bounds.jobs);
  for (int i = status.jobs_size() - 1; i >= first; --i) {
    JsonObject job(bounds);
    AddSummary(status.jobs(i), &job);
    jobs.Add(job.Done());
  }
  const ProgressByRank progress = AllProgress(status);
  int shown = 0, left_out = 0;
  if (status.has_scheduler()) members.Add(MemberJson(status.scheduler(), progress, context));
  for (const bool alive : {true, false}) {
    for (const MemberStatus& member : status.members()) {
      if (member.alive() != alive) continue;
      // A line of the scheduler among the members is a note: what it waits for, or cannot do.
      if (member.role() == ROLE_SCHEDULER) {
        notes.Add(JsonQuoted(PrintableLine(Cut(member.doing(), bounds.text_bytes))));
      } else if (shown >= bounds.members) {
        ++left_out;
      } else {
        members.Add(MemberJson(member, progress, context));
        ++shown;
      }
    }
  }
  JsonObject json(bounds);
  json.Text("cluster", status.name()).Text("version", context.version);
  json.Real("time_s", absl::ToDoubleSeconds(context.time - absl::UnixEpoch()));
  json.Real("uptime_s", status.uptime_s()).Raw("notes", notes.Done());
  json.Raw("jobs", jobs.Done()).Int("jobs_left_out", first);
  json.Raw("members", members.Done()).Int("members_left_out", left_out);
  return json.Done() + "\n";
}

std::string JobJson(const ClusterStatus& status, const JobStatus& job,
                    const DashboardContext& context) {
  const DashboardBounds& bounds = context.bounds;
  JsonObject json(bounds);
  json.Real("time_s", absl::ToDoubleSeconds(context.time - absl::UnixEpoch()));
  AddSummary(job, &json);
  json.Uint("examples_in_epoch", job.examples_in_epoch());
  json.Uint("examples_expected", job.examples_expected());
  json.Raw("staleness", StalenessSummary(job.staleness(), bounds));
  json.Raw("checkpoint", CheckpointJson(job.checkpoint(), bounds));
  json.Raw("recovery", RecoveryJson(job.recovery(), bounds));
  JsonList warnings;
  for (int i = 0; i < std::min(job.warnings_size(), bounds.warnings); ++i)
    warnings.Add(JsonQuoted(PrintableLine(Cut(job.warnings(i), bounds.text_bytes))));
  json.Raw("warnings", warnings.Done()).Raw("epochs_log", EpochsJson(job, bounds));
  json.Raw("workers", WorkersJson(job, bounds));
  json.Int("workers_left_out", std::max(0, job.workers_size() - bounds.workers));
  const HostedParts parts = PartsOf(status, job.job_id(), bounds);
  json.Raw("pservers", parts.pservers.Done()).Raw("shards", parts.shards.Done());
  json.Int("shards_left_out", parts.left_out);
  json.Raw("each_shard", parts.each.Done()).Int("each_shard_left_out", parts.each_left_out);
  json.Text("output_dir", job.config().output_dir());
  json.Text("model_dir", job.result().model_dir());
  json.Text("model_digest", job.result().model_digest());
  json.Text("resumed_from", job.result().resumed_from());
  const std::string config = ToTextproto(job.config());
  json.Raw("config", JsonQuoted(Printable(Cut(config, bounds.config_bytes))));
  json.Bool("config_cut", config.size() > bounds.config_bytes);
  return json.Done() + "\n";
}

std::string CurvesJson(const std::string& job_id, const ThinCurves& curves, size_t most) {
  const DashboardBounds bounds;
  JsonList list;
  for (const auto& [tag, curve] : curves.by_tag()) {
    std::string points = "[";
    for (const ThinCurve::Point& point : curve.points()) {
      absl::StrAppend(&points, points.size() > 1 ? ",[" : "[", point.x, ",");
      AppendNumber(static_cast<float>(point.y), &points);
      points += ']';
    }
    points += ']';
    JsonObject json(bounds);
    json.Text("name", tag).Text("x", CountsSteps(tag) ? "step" : "epoch").Raw("points", points);
    list.Add(json.Done());
  }
  JsonObject json(bounds);
  json.Text("job_id", job_id).Uint("most_points", most).Raw("curves", list.Done());
  return json.Done() + "\n";
}

std::string ErrorJson(const std::string& message) {
  const DashboardBounds bounds;
  return JsonObject(bounds).Text("error", message).Done() + "\n";
}

std::string LogJson(const std::string& name, const std::string& path, uint64_t size,
                    const std::string& text) {
  const DashboardBounds bounds;
  JsonObject json(bounds);
  json.Text("name", name).Text("path", path).Uint("bytes", size);
  json.Raw("text", JsonQuoted(Printable(text)));
  return json.Done() + "\n";
}

}  // namespace sluice
