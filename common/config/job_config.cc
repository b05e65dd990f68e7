#include "common/config/job_config.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/base/local_path.h"
#include "common/base/status_macros.h"
#include "common/config/config_problem.h"
#include "common/config/data_day.h"
#include "common/config/data_format.h"
#include "common/config/feature_patterns.h"
#include "common/config/job_validation.h"
#include "common/config/mode.h"
#include "common/config/own_data.h"
#include "common/config/textproto_file.h"
#include "common/optimizer/update_rule.h"
#include "google/protobuf/text_format.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

std::string AbsolutePath(const std::string& path, const std::string& base_dir) {
  // A URL stays one; the validation refuses those of no place. Folders are compared as text.
  if (HasScheme(path)) {
    const size_t last = path.find_last_not_of('/');
    return path.substr(0, std::max(last + 1, path.find("://") + 3));
  }
  // The validation refuses a mistyped URL, and names it as it was written.
  if (path.empty() || path[0] == '/' || IsMistypedUrl(path)) return path;
  std::error_code error;
  const fs::path base = base_dir.empty() ? fs::current_path(error) : fs::absolute(base_dir, error);
  return (base / path).lexically_normal().string();
}

// Marks the characters of a folder's name that would be wildcards in a pattern of data files.
std::string AsPattern(const std::string& folder) {
  return absl::StrReplaceAll(
      folder, {{"\\", "\\\\"}, {"*", "\\*"}, {"?", "\\?"}, {"[", "\\["}, {"]", "\\]"}});
}

// Sets an absent optional field.
#define SLUICE_DEFAULT(message, field, value) \
  if (!(message)->has_##field()) (message)->set_##field(value)

void FillData(DataConfig* data) {
  SLUICE_DEFAULT(data, shuffle, true);
  const DataFormat& format = FormatOf(*data);
  if (!format.delimited) return;
  CsvFormat* csv = data->mutable_csv();
  if (csv->delimiter().empty()) csv->set_delimiter(format.delimiter);
  SLUICE_DEFAULT(csv, trim, true);
}

void FillFeature(Feature* feature) {
  SLUICE_DEFAULT(feature, in_wide, true);
  SLUICE_DEFAULT(feature, in_deep, true);
  if (feature->has_numeric()) {
    NumericFeature* numeric = feature->mutable_numeric();
    if (numeric->column().empty()) numeric->set_column(feature->name());
    // A missing value of a bucketed feature has no bucket; a default would put it in one.
    if (numeric->boundaries().empty()) SLUICE_DEFAULT(numeric, default_value, 0);
  } else if (feature->has_categorical() && feature->categorical().column().empty()) {
    feature->mutable_categorical()->set_column(feature->name());
  }
}

// Leaves a config without a rule unchanged, so that the validation can refuse it.
void FillOptimizer(OptimizerConfig* optimizer) {
  if (optimizer->rule_case() != OptimizerConfig::RULE_NOT_SET)
    *optimizer = WithDefaults(*optimizer);
}

void FillOptimizers(const ModelParts& parts, JobConfig* job) {
  OptimizersConfig* optimizers = job->mutable_optimizers();
  *optimizers->mutable_all() = WithDefaults(optimizers->all());
  // Only for parts that the model has: an optimizer of another part has no effect and is refused.
  if (parts.dense() && !optimizers->has_dense()) *optimizers->mutable_dense() = optimizers->all();
  if (parts.embedding() && !optimizers->has_embedding())
    *optimizers->mutable_embedding() = optimizers->all();
  if (parts.wide() && !optimizers->has_wide()) *optimizers->mutable_wide() = optimizers->all();
  if (optimizers->has_dense()) FillOptimizer(optimizers->mutable_dense());
  if (optimizers->has_embedding()) FillOptimizer(optimizers->mutable_embedding());
  if (optimizers->has_wide()) FillOptimizer(optimizers->mutable_wide());
  for (TableConfig& table : *job->mutable_tables()) {
    if (table.has_optimizer()) FillOptimizer(table.mutable_optimizer());
    for (ColumnGroup& group : *table.mutable_columns()) {
      if (group.has_optimizer()) FillOptimizer(group.mutable_optimizer());
    }
  }
}

void FillStrategy(const ModelParts& parts, JobConfig* job) {
  StrategyConfig* strategy = job->mutable_strategy();
  SLUICE_DEFAULT(strategy, a_sync, true);
  ASyncConfigs* configs = strategy->mutable_a_sync_configs();
  // Only fields that the mode uses: the validation refuses the others when they are set.
  if (ModeOf(*strategy) == Mode::kAsync) SLUICE_DEFAULT(configs, gradients_to_wait, 1);
  if (ModeOf(*strategy) == Mode::kAsync && configs->has_hot_row_cache()) {
    SLUICE_DEFAULT(configs->mutable_hot_row_cache(), rows, 1'000'000);
    SLUICE_DEFAULT(configs->mutable_hot_row_cache(), max_staleness_steps, 8);
  }
  if (ModeOf(*strategy) == Mode::kGeo && parts.no_sparse.empty())
    SLUICE_DEFAULT(configs, geo_cache_rows, 10'000'000);
  if (WorkersKeepDenseTables(*job)) {
    SLUICE_DEFAULT(strategy->mutable_sync_configs(), fuse_mb, 32);
    SLUICE_DEFAULT(strategy->mutable_sync_configs(), fuse_layers, 20);
    SLUICE_DEFAULT(strategy->mutable_sync_configs(), comm_num, 1);
  }
}

void FillCheckpoint(JobConfig* job) {
  constexpr double kEveryS = 600;
  constexpr uint32_t kKeep = 2;
  if (job->evaluate_only()) return;
  CheckpointConfig* checkpoint = job->mutable_checkpoint();
  SLUICE_DEFAULT(checkpoint, save_final_model, true);
  SLUICE_DEFAULT(checkpoint, keep, kKeep);
  SLUICE_DEFAULT(checkpoint, every_s, checkpoint->keep() > 0 ? kEveryS : 0);
  SLUICE_DEFAULT(checkpoint, at_end, checkpoint->keep() > 0);
}

void FillTrainAndEval(JobConfig* job) {
  TrainConfig* train = job->mutable_train();
  SLUICE_DEFAULT(train, batch_size, 512);
  SLUICE_DEFAULT(train, epochs, 1);
  if (job->evaluate_only()) train->set_epochs(0);
  SLUICE_DEFAULT(train, log_every, 30);
  SLUICE_DEFAULT(train, prefetch_batches, 4);
  SLUICE_DEFAULT(train, reader_threads, 1);
  SLUICE_DEFAULT(train, pipeline_depth, 1);
  SLUICE_DEFAULT(train, step_timeout_s, 60);
  if (train->has_early_stop()) SLUICE_DEFAULT(train->mutable_early_stop(), patience, 3);
  if (train->epochs() > 1 && !ProgramGivesData(*job))
    SLUICE_DEFAULT(job->mutable_data(), cache, true);
  if (ModeOf(job->strategy()) == Mode::kSync && !ProgramGivesData(*job)) {
    SLUICE_DEFAULT(job->mutable_data(), shuffle_lanes, 64);
    SLUICE_DEFAULT(job->mutable_data(), shuffle_window, 8192);
  }
  if (HasEvaluationData(*job)) {
    SLUICE_DEFAULT(job->mutable_eval(), every_epochs, 1);
    SLUICE_DEFAULT(job->mutable_eval(), batch_size, 2048);
  }
  FillCheckpoint(job);
}

#undef SLUICE_DEFAULT

JobConfig FillDefaults(JobConfig job, const std::string& base_dir, const ModelRules& rules) {
  if (job.version() == 0) job.set_version(1);
  if (job.name().empty()) job.set_name("job");
  if (!job.has_worker_num()) job.set_worker_num(1);
  ResolvePaths(base_dir, &job);
  FillData(job.mutable_data());
  if (job.data().day().empty() && NeedsDataDay(job))
    job.mutable_data()->set_day(DayInPaths(job.data()));
  for (Feature& feature : *job.mutable_features()) FillFeature(&feature);
  rules.FillDefaults(&job);
  const ModelParts parts = rules.PartsOf(job);
  FillOptimizers(parts, &job);
  FillStrategy(parts, &job);
  FillTrainAndEval(&job);
  return job;
}

// One line a problem. A feature of the file may stand for thousands that all have its problem, so
// problems of one path are cut short.
absl::Status ToStatus(const std::vector<ConfigProblem>& problems,
                      const std::function<std::string(const std::string& path)>& place) {
  constexpr size_t kMostOfOnePath = 5;
  if (problems.empty()) return absl::OkStatus();
  std::vector<std::string> lines;
  std::map<std::string, std::set<std::string>> told;  // by path
  std::map<std::string, size_t> more;
  for (const ConfigProblem& p : problems) {
    std::set<std::string>& texts = told[p.path];
    if (texts.count(p.text) > 0) continue;
    if (texts.size() == kMostOfOnePath) {
      ++more[p.path];
      continue;
    }
    texts.insert(p.text);
    lines.push_back(absl::StrCat(place(p.path), p.path, ": ", p.text));
  }
  for (const auto& [path, count] : more)
    lines.push_back(absl::StrCat(place(path), path, ": ... and ", count, " more like this"));
  return absl::InvalidArgumentError(absl::StrJoin(lines, "\n"));
}

// Puts the path of the field in front of the message.
absl::Status WithItsField(const absl::Status& status) {
  const std::string path = FieldOf(status);
  if (path.empty()) return status;
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

// Expands the features of `job` that stand for many.
absl::Status ExpandFeatures(const FindColumns& columns_of, const std::string& base_dir,
                            const ModelRules& rules, FeaturePatterns* patterns, JobConfig* job) {
  SLUICE_RETURN_IF_ERROR(patterns->ExpandRanges());
  if (!patterns->HasWildcards()) return absl::OkStatus();
  if (FormatOf(job->data()).numbered || !columns_of) {
    return AtField("features", absl::InvalidArgumentError(absl::StrCat(
                                   "a '*' needs data with named columns, which ",
                                   DataConfig::Format_Name(job->data().format()),
                                   " does not have; give a range, such as name: \"{1..59}\"")));
  }
  JobConfig with_paths = *job;
  ResolvePaths(base_dir, &with_paths);
  FillData(with_paths.mutable_data());
  SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> columns, columns_of(with_paths.data()));
  // The validation says more about wrong data than a wildcard that matches nothing.
  if (columns.empty() && !FindProblems(FillDefaults(*job, base_dir, rules), rules).empty())
    return absl::OkStatus();
  return patterns->ExpandWildcards(columns);
}

// Whether `path` is `outer`, or a field or element of it.
bool IsWithin(const std::string& path, const std::string& outer) {
  return absl::StartsWith(path, outer) &&
         (path.size() == outer.size() || path[outer.size()] == '.' || path[outer.size()] == '[');
}

// Says where the value of `path` comes from, ending with ": ". This is the last override that set
// the whole value, or else the file and line, with the last override that set a part of it.
std::string PlaceOf(const std::string& path, const std::string& file, int line,
                    absl::Span<const ConfigOverride> overrides) {
  std::string with;
  for (auto o = overrides.rbegin(); o != overrides.rend() && !path.empty(); ++o) {
    if (IsWithin(path, o->path)) return absl::StrCat(o->origin, ": ");
    if (with.empty() && IsWithin(o->path, path)) {
      with = absl::StrCat(" with ", o->origin, o->origin == "--set" ? " " + o->path : "");
    }
  }
  return absl::StrCat(file, line > 0 ? absl::StrCat(":", line) : "", with, ": ");
}

// The file's name without folder and extension. Characters that a job name cannot have become '_'.
std::string NameFromFile(const std::string& file) {
  std::string name = fs::path(file).stem().string().substr(0, 64);
  for (char& c : name) {
    if (!absl::ascii_isalnum(c) && c != '_' && c != '-' && c != '.') c = '_';
  }
  return name;
}

}  // namespace

void ResolvePaths(const std::string& base_dir, JobConfig* job) {
  // Only what the job says is a pattern, not the folder in which the job file happens to be.
  std::error_code error;
  const std::string base = AsPattern(
      (base_dir.empty() ? fs::current_path(error) : fs::absolute(base_dir, error)).string());
  for (std::string& file : *job->mutable_data()->mutable_train_files())
    file = AbsolutePath(file, base);
  for (std::string& file : *job->mutable_data()->mutable_eval_files())
    file = AbsolutePath(file, base);
  job->mutable_data()->set_cache_dir(AbsolutePath(job->data().cache_dir(), base_dir));
  job->set_initial_model(AbsolutePath(job->initial_model(), base_dir));
  job->set_initial_checkpoint(AbsolutePath(job->initial_checkpoint(), base_dir));
  job->set_output_dir(AbsolutePath(job->output_dir(), ""));
  job->set_trace_file(AbsolutePath(job->trace_file(), ""));
  // Reading the field through mutable_checkpoint() would set the message.
  if (!job->checkpoint().dir().empty())
    job->mutable_checkpoint()->set_dir(AbsolutePath(job->checkpoint().dir(), ""));
  if (!job->export_().dir().empty())
    job->mutable_export_()->set_dir(AbsolutePath(job->export_().dir(), ""));
}

bool CanCheckpoint(const JobConfig& job) {
  const bool keeps = !job.checkpoint().has_keep() || job.checkpoint().keep() > 0;
  return keeps && !job.evaluate_only();
}

std::string CheckpointRoot(const JobConfig& job) {
  if (std::string dir = job.checkpoint().dir(); !dir.empty()) {
    // Folders are compared as text.
    while (dir.size() > 1 && dir.back() == '/') dir.pop_back();
    return dir;
  }
  return job.output_dir().empty() ? "" : absl::StrCat(job.output_dir(), "/checkpoints");
}

absl::StatusOr<JobConfig> ReadJobConfig(const std::string& file) {
  JobConfig job;
  SLUICE_RETURN_IF_ERROR(ReadTextprotoFile(file, &job, nullptr));
  return job;
}

absl::StatusOr<JobConfig> EffectiveJobConfig(JobConfig job, const std::string& base_dir,
                                             const ModelRules& rules) {
  SLUICE_RETURN_IF_ERROR(WithItsField(FeaturePatterns(&job).ExpandRanges()));
  job = FillDefaults(std::move(job), base_dir, rules);
  SLUICE_RETURN_IF_ERROR(ToStatus(FindProblems(job, rules), [](const std::string&) { return ""; }));
  return job;
}

absl::StatusOr<JobConfig> LoadJobConfig(const std::string& file,
                                        absl::Span<const ConfigOverride> overrides,
                                        const ModelRules& rules,
                                        const std::function<absl::Status(const JobConfig&)>& check,
                                        const FindColumns& columns) {
  JobConfig job;
  FieldLocations locations;
  SLUICE_RETURN_IF_ERROR(ReadTextprotoFile(file, &job, &locations));
  SLUICE_RETURN_IF_ERROR(ApplyOverrides(overrides, &job));
  if (job.name().empty()) job.set_name(NameFromFile(file));
  const auto place = [&](const std::string& path) {
    return PlaceOf(path, file, LineOfField(locations, job, path), overrides);
  };
  const auto placed = [&](const std::string& path, const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat(place(path), status.message()));
  };
  const std::string folder = fs::path(file).parent_path().string();
  FeaturePatterns patterns(&job);
  const absl::Status expanded = ExpandFeatures(columns, folder, rules, &patterns, &job);
  if (!expanded.ok()) return placed(FieldOf(expanded), WithItsField(expanded));
  job = FillDefaults(std::move(job), folder, rules);
  std::vector<ConfigProblem> problems = FindProblems(job, rules);
  for (ConfigProblem& problem : problems) problem.path = patterns.PathInFile(problem.path);
  SLUICE_RETURN_IF_ERROR(ToStatus(problems, place));
  const absl::Status checked = check ? check(job) : absl::OkStatus();
  if (checked.ok()) return job;
  return placed(patterns.PathInFile(FieldOf(checked)), checked);
}

std::string ToTextproto(const google::protobuf::Message& message) {
  google::protobuf::TextFormat::Printer printer;
  printer.SetUseShortRepeatedPrimitives(true);
  std::string text;
  printer.PrintToString(message, &text);
  return text;
}

}  // namespace sluice
