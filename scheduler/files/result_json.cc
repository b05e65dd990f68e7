#include "scheduler/files/result_json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/printable.h"
#include "common/daemon/hot_row_use.h"

namespace sluice {
namespace {

std::string Number(double value) {
  // JSON has neither NaN nor infinity.
  if (!std::isfinite(value)) return "null";
  char text[64];
  // The shortest text that gives the same number again, in every locale.
  const auto end = std::to_chars(text, text + sizeof(text), value);
  return std::string(text, end.ptr);
}

// Builds {"name": value, ...}: one member per line when `indent` is given, else on one line.
class Object {
 public:
  explicit Object(int indent = -1) : indent_(indent) {}
  Object& Raw(const char* name, const std::string& json) {
    absl::StrAppend(&text_, text_.empty() ? "" : ",", Space(indent_), "\"", name, "\": ", json);
    return *this;
  }
  Object& Text(const char* name, const std::string& text) { return Raw(name, JsonQuoted(text)); }
  Object& Int(const char* name, int64_t value) { return Raw(name, absl::StrCat(value)); }
  Object& Uint(const char* name, uint64_t value) { return Raw(name, absl::StrCat(value)); }
  Object& Real(const char* name, double value) { return Raw(name, Number(value)); }
  std::string Done() const {
    return absl::StrCat("{", text_, indent_ < 0 ? "" : Space(indent_ - 2), "}");
  }

 private:
  std::string Space(int indent) const {
    if (indent_ >= 0) return "\n" + std::string(indent, ' ');
    return text_.empty() ? "" : " ";
  }
  const int indent_;
  std::string text_;
};

std::string UserMetrics(const EvalMetrics& eval) {
  Object json;
  // The scheduler has checked the names: they need no quotes.
  for (const NamedValue& metric : eval.user()) json.Real(metric.name().c_str(), metric.value());
  return json.Done();
}

std::string Eval(bool present, const EvalMetrics& eval) {
  if (!present) return "null";
  Object json;
  json.Raw("auc", eval.has_auc() ? Number(eval.auc()) : "null");
  json.Real("log_loss", eval.log_loss()).Real("accuracy", eval.accuracy());
  json.Real("mae", eval.mae()).Real("rmse", eval.rmse()).Uint("examples", eval.examples());
  json.Real("auc_error_bound", eval.auc_error_bound()).Real("calibration", eval.calibration());
  json.Raw("auc_standard_error", eval.has_auc() ? Number(eval.auc_standard_error()) : "null");
  json.Real("positive_rate", eval.positive_rate());
  if (!eval.has_auc()) json.Text("auc_undefined", eval.auc_undefined());
  if (!eval.user().empty()) json.Raw("user", UserMetrics(eval));
  return json.Done();
}

std::string EpochsLog(const JobResult& result) {
  std::string out;
  for (const EpochResult& epoch : result.epochs_log()) {
    Object json;
    json.Uint("epoch", epoch.epoch()).Uint("examples", epoch.examples());
    json.Real("seconds", epoch.seconds()).Real("loss", epoch.loss());
    json.Raw("eval", Eval(epoch.has_eval(), epoch.eval()));
    absl::StrAppend(&out, out.empty() ? "" : ",", "\n    ", json.Done());
  }
  return out.empty() ? "[]" : absl::StrCat("[", out, "\n  ]");
}

std::string Best(const JobResult& result) {
  if (!result.has_best()) return "null";
  Object json;
  json.Uint("epoch", result.best().epoch()).Uint("step", result.best().step());
  json.Raw("eval", Eval(true, result.best().eval()));
  return json.Done();
}

std::string Stages(const StageSeconds& stages) {
  Object json;
  json.Real("read", stages.read()).Real("dedup", stages.dedup());
  json.Real("pull_wait", stages.pull_wait()).Real("compute", stages.compute());
  json.Real("push_wait", stages.push_wait());
  return json.Done();
}

std::string StalenessJson(const Staleness& staleness) {
  const double pushes = static_cast<double>(staleness.pushes());
  Object json;
  json.Uint("pushes", staleness.pushes()).Uint("sum", staleness.sum()).Uint("max", staleness.max());
  json.Real("mean", pushes > 0 ? static_cast<double>(staleness.sum()) / pushes : 0);
  return json.Done();
}

double Share(uint64_t count, uint64_t of) {
  return of == 0 ? std::numeric_limits<double>::quiet_NaN()
                 : static_cast<double>(count) / static_cast<double>(of);
}

uint64_t CountBits(const std::string& bits) {
  uint64_t count = 0;
  for (const char byte : bits) count += __builtin_popcount(static_cast<unsigned char>(byte));
  return count;
}

std::string FeatureData(const Feature& feature, const FeatureSummary& summary, uint64_t examples) {
  Object json;
  json.Text("name", feature.name()).Real("missing", Share(summary.missing(), examples));
  const int vocabulary = feature.categorical().vocabulary_size();
  if (vocabulary == 0) return json.Done();
  json.Real("out_of_vocabulary", Share(summary.out_of_vocabulary(), examples));
  json.Int("vocabulary", vocabulary).Uint("vocabulary_seen", CountBits(summary.vocabulary_seen()));
  return json.Done();
}

std::string Data(const DataSummary& data, const JobConfig& config) {
  std::string features;
  // The counts come from workers, and the configuration does not.
  for (int i = 0; i < std::min(data.features_size(), config.features_size()); ++i) {
    if (config.features(i).has_cross()) continue;  // crosses have no cells themselves
    absl::StrAppend(&features, features.empty() ? "" : ",", "\n      ",
                    FeatureData(config.features(i), data.features(i), data.examples()));
  }
  Object json(4);
  json.Uint("examples", data.examples());
  json.Real("positive_rate", Share(data.positive(), data.examples()));
  json.Raw("features", features.empty() ? "[]" : absl::StrCat("[", features, "\n    ]"));
  return json.Done();
}

std::string RecoveryOf(const JobResult& result) {
  const Recovery& recovery = result.recovery();
  Object json;
  json.Uint("worker_losses", recovery.worker_losses());
  json.Uint("pserver_losses", recovery.pserver_losses());
  json.Uint("scheduler_restarts", recovery.scheduler_restarts());
  json.Uint("rollbacks", recovery.rollbacks());
  json.Uint("steps_rolled_back", recovery.steps_rolled_back());
  json.Uint("shrinks", recovery.shrinks()).Uint("scalings", recovery.scalings());
  json.Uint("examples_replayed", result.examples_replayed());
  json.Uint("updates_lost", recovery.updates_lost());
  json.Text("resumed_from", result.resumed_from()).Text("last", recovery.last());
  std::string events;
  for (const RecoveryEvent& event : recovery.events()) {
    Object one;
    one.Uint("step", event.step()).Text("text", event.text());
    absl::StrAppend(&events, events.empty() ? "" : ",", "\n    ", one.Done());
  }
  json.Raw("events", events.empty() ? "[]" : absl::StrCat("[", events, "\n  ]"));
  return json.Done();
}

std::string CalibrationBins(const JobResult& result) {
  std::string out;
  for (const CalibrationBin& bin : result.calibration_bins()) {
    Object json;
    json.Real("weight", bin.weight()).Real("probability", bin.probability());
    json.Real("positive_rate", bin.positive_rate());
    absl::StrAppend(&out, out.empty() ? "" : ",", "\n    ", json.Done());
  }
  return out.empty() ? "[]" : absl::StrCat("[", out, "\n  ]");
}

std::string Checkpoints(const CheckpointStatus& status) {
  Object json;
  json.Uint("made", status.made()).Uint("failed", status.failed());
  json.Text("newest", status.dir()).Uint("step", status.step());
  // Without a rule and without a checkpoint there is nothing that could be old.
  const bool dated = status.step() > 0 || status.age_s() > 0;
  json.Raw("age_s", dated ? Number(status.age_s()) : "null");
  json.Uint("bytes", status.bytes()).Real("seconds", status.seconds());
  json.Text("last_error", status.last_error());
  return json.Done();
}

std::string Warnings(const JobResult& result) {
  std::string out;
  for (const std::string& warning : result.warnings())
    absl::StrAppend(&out, out.empty() ? "" : ",", "\n    ", JsonQuoted(warning));
  return out.empty() ? "[]" : absl::StrCat("[", out, "\n  ]");
}

std::string Tables(const JobResult& result) {
  std::string out;
  for (const TableStatus& table : result.tables()) {
    const RowTurnover& turnover = table.turnover();
    Object json;
    json.Text("name", table.name()).Uint("rows", table.rows()).Uint("bytes", table.bytes());
    json.Uint("reserved_bytes", table.reserved_bytes());
    json.Raw("row_limit", table.row_limit() == 0 ? "null" : absl::StrCat(table.row_limit()));
    json.Uint("rows_admitted", turnover.admitted()).Uint("rows_refused", turnover.refused());
    json.Uint("rows_expired", turnover.expired()).Uint("rows_evicted", turnover.evicted());
    json.Uint("rows_deleted", turnover.deleted());
    absl::StrAppend(&out, out.empty() ? "" : ",", "\n    ", json.Done());
  }
  return out.empty() ? "[]" : absl::StrCat("[", out, "\n  ]");
}

// On one line: FindUnfinished reads this member by its line.
std::string Names(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names)
    absl::StrAppend(&out, out.empty() ? "" : ", ", JsonQuoted(name));
  return absl::StrCat("[", out, "]");
}

std::string HotRowCache(const HotRowUse& use) {
  Object json;
  json.Uint("hits", use.hits()).Uint("misses", use.misses()).Real("hit_share", HitShare(use));
  json.Real("staleness_mean", MeanStaleness(use)).Uint("staleness_max", use.staleness_max());
  json.Uint("whole_batches", use.whole_batches());
  return json.Done();
}

}  // namespace

std::string ResultJson(const JobResult& result, const JobConfig& config,
                       const std::vector<std::string>& kept_checkpoints,
                       const std::vector<std::string>& finished_checkpoints, uint64_t instance) {
  Object json(2);
  json.Text("job", result.job()).Text("mode", result.mode()).Int("k_steps", result.k_steps());
  json.Text("status", result.status()).Text("message", result.message());
  json.Uint("worker_num", config.worker_num());
  json.Uint("epochs", result.epochs()).Uint("global_step", result.global_step());
  json.Uint("examples", result.examples()).Uint("examples_dropped", result.examples_dropped());
  json.Uint("examples_replayed", result.examples_replayed()).Uint("bad_lines", result.bad_lines());
  json.Real("seconds", result.seconds());
  json.Real("examples_per_second", result.examples_per_second());
  json.Raw("eval", Eval(result.has_eval(), result.eval()));
  json.Raw("calibration_bins", CalibrationBins(result));
  json.Raw("best", Best(result));
  json.Raw("stopped_early", result.stopped_early() ? "true" : "false");
  json.Text("stopped_by", result.stopped_by());
  json.Raw("epochs_log", EpochsLog(result)).Raw("stages", Stages(result.stages()));
  json.Raw("staleness", StalenessJson(result.staleness()));
  json.Raw("tables", Tables(result));
  json.Raw("data", result.has_data() ? Data(result.data(), config) : "null");
  json.Raw("warnings", Warnings(result));
  if (result.has_hot_rows()) json.Raw("hot_rows", HotRowCache(result.hot_rows()));
  json.Raw("recovery", RecoveryOf(result));
  json.Raw("checkpoints", result.has_checkpoint() ? Checkpoints(result.checkpoint()) : "null");
  json.Raw("kept_checkpoints", Names(kept_checkpoints));
  if (!finished_checkpoints.empty()) json.Raw("finished_checkpoints", Names(finished_checkpoints));
  json.Text("initial_checkpoint", config.initial_checkpoint());
  json.Text("model_dir", result.model_dir()).Text("model_digest", result.model_digest());
  // As text: it has 64 bits.
  json.Text("instance", absl::StrCat(instance));
  return json.Done() + "\n";
}

std::string MarkReplaced(const std::string& result_json, const std::string& by_job) {
  constexpr absl::string_view kDone = "\n  \"status\": \"done\",";
  const size_t status = result_json.find(kDone.data());
  if (status == std::string::npos) return result_json;
  const std::string message =
      absl::StrCat("job ", by_job,
                   " was about to replace this job's model; it was interrupted if this file still "
                   "says so, and model/MANIFEST tells which model is there");
  absl::string_view rest = absl::string_view(result_json).substr(status + kDone.size());
  // The message of a job that is done is empty.
  if (absl::StartsWith(rest, "\n  \"message\": ")) rest.remove_prefix(rest.find('\n', 1));
  return absl::StrCat(result_json.substr(0, status), "\n  \"status\": \"replaced\",",
                      "\n  \"message\": ", JsonQuoted(message), ",", rest);
}

}  // namespace sluice
