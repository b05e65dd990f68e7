#include "common/config/job_validation.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/local_path.h"
#include "common/config/closest_name.h"
#include "common/config/csv_options.h"
#include "common/config/data_columns.h"
#include "common/config/data_day.h"
#include "common/config/data_format.h"
#include "common/config/feature_keys.h"
#include "common/config/job_config.h"
#include "common/config/mode.h"
#include "common/config/output_folder.h"
#include "common/config/own_data.h"
#include "common/optimizer/update_rule.h"

namespace sluice {
namespace {

constexpr uint32_t kMaxSlotDim = 65536;
constexpr uint32_t kMaxShards = 65536;
constexpr uint64_t kMaxWindow = uint64_t{1} << 32;

// "sgd {}, momentum {} or ftrl {}", with all rules.
std::string AnyOptimizerRule() {
  const std::vector<std::string>& names = RuleNames();
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 < names.size() ? ", " : " or ";
    absl::StrAppend(&text, names[i], " {}");
  }
  return text;
}

class JobValidator {
 public:
  JobValidator(const JobConfig& job, const ModelRules& rules)
      : job_(job), mode_(ModeOf(job.strategy())), rules_(rules), parts_(rules.PartsOf(job)) {}

  // All problems at once, in the order of the file: a user who mends one must not wait for the
  // next.
  std::vector<ConfigProblem> Run() {
    Job();
    Places();
    Files();
    Lanes();
    const DataFormat& format = FormatOf(job_.data());
    if (format.delimited) {
      Csv();
    } else {
      OtherFormat();
    }
    if (!job_.data().slots().empty() && !format.slots) {
      Add("data.slots", "only have an effect with format MULTI_SLOT or SLOT_VALUE; remove them");
    }
    if (job_.data().format() != DataConfig::FORMAT_UNSPECIFIED)
      AddAll(FindCsvProblems(job_.data()));
    AddAll(FindColumnProblems(job_));
    Label();
    Features();
    AddAll(rules_.FindProblems(job_));
    Tables();
    Day();
    Optimizers();
    Strategy();
    AddAll(FindTrainProblems(job_));
    Checkpoints();
    Exports();
    BestModel();
    Recovery();
    // Last: an option without effect matters less than a contradiction.
    Unused();
    return std::move(problems_);
  }

 private:
  void Add(const std::string& path, const std::string& text) { problems_.push_back({path, text}); }
  void AddAll(std::vector<ConfigProblem> more) {
    for (ConfigProblem& problem : more) problems_.push_back(std::move(problem));
  }
  void Range(const std::string& path, uint64_t value, uint64_t low, uint64_t high) {
    AddIfOutOfRange(path, value, low, high, &problems_);
  }

  void Job() {
    if (job_.version() > 1) {
      Add("version",
          absl::StrCat(job_.version(),
                       " is newer than this build knows; give 1, or use a newer sluice"));
    }
    const std::string& name = job_.name();
    const bool good_name =
        !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
          return absl::ascii_isalnum(c) || c == '_' || c == '.' || c == '-';
        });
    // The default output folder gets this name, so it must be a plain file name.
    if (!good_name || name[0] == '.') {
      Add("name", absl::StrCat("'", name,
                               "' is not a job name; give 1 to 64 of A-Z a-z 0-9 _ . -, not "
                               "starting with a dot"));
    }
    Range("worker_num", job_.worker_num(), 1, kMaxWorkers);
    if (!job_.initial_checkpoint().empty()) InitialCheckpoint();
    if (!job_.evaluate_only()) return;
    if (job_.initial_model().empty()) {
      Add("evaluate_only", "true needs a model; set initial_model to the folder of a saved one");
    }
    if (!HasEvaluationData(job_)) {
      Add("evaluate_only", "true needs data; set data.eval_files");
    }
  }

  void InitialCheckpoint() {
    if (!job_.initial_model().empty()) {
      Add("initial_checkpoint",
          "contradicts initial_model: tables start from one of them; keep initial_checkpoint for "
          "values and optimizer state, initial_model for values alone");
    }
    if (job_.evaluate_only()) {
      Add("initial_checkpoint",
          "contradicts evaluate_only, which trains nothing; evaluate a saved model or the values "
          "of a checkpoint with initial_model");
    }
  }

  // Paths of files and folders. A URL of no known place would become a folder of that name.
  void Places() {
    const auto check = [this](const std::string& path, const std::string& value) {
      if (const std::string problem = OutputUrlProblem(value); !problem.empty())
        return Add(path, absl::StrCat("'", value, "' ", problem));
      if (HasScheme(value) && value.find('/', value.find("://") + 3) >= value.size() - 1) {
        Add(path, absl::StrCat("'", value, "' names no folder in a bucket; write ",
                               "s3://BUCKET/FOLDER"));
      }
    };
    const DataConfig& data = job_.data();
    check("output_dir", job_.output_dir());
    check("initial_model", job_.initial_model());
    check("initial_checkpoint", job_.initial_checkpoint());
    check("trace_file", job_.trace_file());
    check("checkpoint.dir", job_.checkpoint().dir());
    check("export.dir", job_.export_().dir());
    // Caches are mapped and locked.
    if (HasScheme(data.cache_dir())) {
      Add("data.cache_dir",
          absl::StrCat("'", data.cache_dir(), "' ", SchemeProblem(data.cache_dir())));
    }
    if (IsMistypedUrl(data.cache_dir())) {
      Add("data.cache_dir",
          absl::StrCat("'", data.cache_dir(), "' ", OutputUrlProblem(data.cache_dir())));
    }
    const auto check_data = [this](const std::string& path, const std::string& value) {
      if (const std::string problem = DataUrlProblem(value); !problem.empty())
        Add(path, absl::StrCat("'", value, "' ", problem));
    };
    for (int i = 0; i < data.train_files_size(); ++i)
      check_data(absl::StrCat("data.train_files[", i, "]"), data.train_files(i));
    for (int i = 0; i < data.eval_files_size(); ++i)
      check_data(absl::StrCat("data.eval_files[", i, "]"), data.eval_files(i));
  }

  void Files() {
    const DataConfig& data = job_.data();
    if (data.train_files().empty() && !job_.evaluate_only() && !ProgramGivesData(job_)) {
      Add("data.train_files", "is empty; name at least one file or glob, or set evaluate_only");
    }
    for (int i = 0; i < data.train_files_size(); ++i)
      NotEmpty("data.train_files", i, data.train_files(i));
    for (int i = 0; i < data.eval_files_size(); ++i)
      NotEmpty("data.eval_files", i, data.eval_files(i));
    if (data.has_task_bytes() && data.task_bytes() < 1024) {
      Add("data.task_bytes", absl::StrCat(data.task_bytes(), " is too small; give at least 1024"));
    }
    if (data.has_cache() && !data.cache()) {
      if (!data.cache_dir().empty())
        Add("data.cache_dir", "has no effect with data.cache: false; remove one of them");
      if (data.has_cache_max_bytes())
        Add("data.cache_max_bytes", "has no effect with data.cache: false; remove one of them");
    } else if (data.has_cache_max_bytes() && data.cache_max_bytes() == 0) {
      Add("data.cache_max_bytes", "0 leaves no room; set data.cache: false instead");
    }
  }

  void Lanes() {
    const DataConfig& data = job_.data();
    if (data.has_shuffle_lanes()) Range("data.shuffle_lanes", data.shuffle_lanes(), 1, kMaxWorkers);
    if (data.has_shuffle_window())
      Range("data.shuffle_window", data.shuffle_window(), 1, kMaxWindow);
    // Only what the user has set is refused. A default is adapted to the number of workers.
    if (mode_ != Mode::kSync || job_.evaluate_only() || !data.has_shuffle_lanes() ||
        data.assignment() != DataConfig::GLOBAL || job_.worker_num() <= data.shuffle_lanes()) {
      return;
    }
    Add("data.shuffle_lanes",
        absl::StrCat(data.shuffle_lanes(), " is too few for worker_num ", job_.worker_num(),
                     ": in mode sync every worker serves at least one lane; set ",
                     "data.shuffle_lanes to ", job_.worker_num(), " or a multiple of it"));
  }

  void NotEmpty(const std::string& list, int i, const std::string& value) {
    if (value.empty()) Add(absl::StrCat(list, "[", i, "]"), "is empty; give a path or remove it");
  }

  void Csv() {
    const CsvFormat& csv = job_.data().csv();
    if (csv.header() && !csv.columns().empty()) {
      Add("data.csv.header",
          "true contradicts data.csv.columns; keep header when the first line of each file names "
          "the columns, else keep columns");
    }
    if (!csv.header() && csv.columns().empty()) {
      Add("data.csv",
          "does not say what the columns are; set header: true when the first line of each file "
          "names "
          "them, else list them in columns");
    }
    std::set<std::string> seen;
    for (int i = 0; i < csv.columns_size(); ++i) {
      if (csv.columns(i).empty() || !seen.insert(csv.columns(i)).second) {
        Add(absl::StrCat("data.csv.columns[", i, "]"),
            absl::StrCat("'", csv.columns(i),
                         "' is empty or given twice; give every column its own name"));
      }
    }
    if (job_.data().label().column().empty()) {
      Add("data.label.column", "is missing; name the column that holds the label");
    }
    // The label as a weight would train on nothing but itself.
    if (!job_.data().weight_column().empty() &&
        job_.data().weight_column() == job_.data().label().column()) {
      Add("data.weight_column",
          absl::StrCat("'", job_.data().weight_column(), "' is the label; name another column"));
    }
  }

  void OtherFormat() {
    // The model's rules say what such a job must not have.
    if (ProgramGivesData(job_)) return;
    if (job_.data().format() == DataConfig::FORMAT_UNSPECIFIED) {
      Add("data.format", absl::StrCat("is missing; set it to ", FormatNames()));
      return;
    }
    const DataFormat& format = FormatOf(job_.data());
    const std::string& label = job_.data().label().column();
    if (format.slots) {
      SlotNames();
    } else if (format.label_first && !label.empty()) {
      Add("data.label.column", absl::StrCat("'", label, "' has no effect: ",
                                            DataConfig::Format_Name(job_.data().format()),
                                            " has the label first; remove it"));
    } else if (!format.label_first && label.empty()) {
      Add("data.label.column", "is missing; name the column that holds the label");
    } else if (!format.label_first && label == job_.data().weight_column()) {
      Add("data.weight_column", absl::StrCat("'", label, "' is the label; name another column"));
    }
  }

  void SlotNames() {
    const DataConfig& data = job_.data();
    if (data.slots().empty()) Add("data.slots", "is empty; list the slots of a line, in order");
    std::set<std::string> seen;
    for (int i = 0; i < data.slots_size(); ++i) {
      const std::string path = absl::StrCat("data.slots[", i, "]");
      if (data.slots(i).name().empty() || !seen.insert(data.slots(i).name()).second) {
        Add(path + ".name", absl::StrCat("'", data.slots(i).name(),
                                         "' is empty or given twice; give every slot a name of "
                                         "its own"));
      }
      if (data.slots(i).dim() > kMaxSlotDim) {
        Add(path + ".dim",
            absl::StrCat(data.slots(i).dim(), " is too large; give at most ", kMaxSlotDim));
      }
    }
    if (data.label().column().empty())
      Add("data.label.column", "is missing; name the slot that holds the label");
  }

  void Label() {
    const LabelConfig& label = job_.data().label();
    if (label.has_positive_at_least() && (label.positive_size() > 0 || label.negative_size() > 0)) {
      Add("data.label.positive_at_least",
          "contradicts positive and negative; keep the threshold or the values");
    }
    if (label.has_positive_at_least() && !std::isfinite(label.positive_at_least())) {
      Add("data.label.positive_at_least", "is not a finite number; give one");
    }
    if (label.negative_size() > 0 && label.positive_size() == 0) {
      Add("data.label.negative", "is given without positive; say which values mean 1");
    }
    // A value in both would depend on the order in which they are looked up.
    for (const std::string& value : label.negative()) {
      if (std::find(label.positive().begin(), label.positive().end(), value) !=
          label.positive().end()) {
        Add("data.label.negative",
            absl::StrCat("'", value, "' is also in positive; keep it in one of them"));
      }
    }
  }

  void Features() {
    if (job_.features().empty()) Add("features", "is empty; declare at least one");
    std::set<std::string> names;
    for (int i = 0; i < job_.features_size(); ++i) {
      const Feature& f = job_.features(i);
      const std::string path = absl::StrCat("features[", i, "]");
      if (f.name().empty()) Add(path, "has no name; give it one");
      if (!f.name().empty() && !names.insert(f.name()).second) {
        Add(path + ".name", absl::StrCat("'", f.name(), "' is given twice; rename one"));
      }
      if (f.kind_case() == Feature::KIND_NOT_SET) {
        Add(path, absl::StrCat("'", f.name(),
                               "' has no kind; add numeric {}, categorical {} or cross {}"));
      }
    }
    AddAll(FindKeyProblems(job_));
  }

  void Initial(const std::string& path, const Initializer& initializer) {
    AddInitializerProblems(path, initializer, &problems_);
  }

  void Tables() {
    std::set<std::string> names;
    for (int i = 0; i < job_.tables_size(); ++i) {
      const TableConfig& t = job_.tables(i);
      const std::string path = absl::StrCat("tables[", i, "]");
      if (t.name().empty()) Add(path, "has no name; name the table of the model that it overrides");
      if (!t.name().empty() && !names.insert(t.name()).second) {
        Add(path + ".name", absl::StrCat("'", t.name(), "' is given twice; merge the two"));
      }
      if (t.wire_type() == TableConfig::BF16 && mode_ == Mode::kGeo) {
        Add(path + ".wire_type",
            "BF16 is refused in Geo: rounded deltas add up; use F32, or k_steps 0");
      }
      UpdateAt(path + ".update_at", t);
      // 0 means the default, so that only the upper bound is checked.
      if (t.num_shards() > kMaxShards) Range(path + ".num_shards", t.num_shards(), 1, kMaxShards);
      AddAll(FindRowPolicyProblems(job_, i));
      Initial(path + ".initializer", t.initializer());
      if (t.has_expire()) Expire(path + ".expire", t.expire());
      if (t.has_optimizer()) Optimizer(path + ".optimizer", t.optimizer());
      for (int c = 0; c < t.columns_size(); ++c) {
        const std::string column = absl::StrCat(path, ".columns[", c, "]");
        Initial(column + ".initializer", t.columns(c).initializer());
        if (t.columns(c).has_optimizer())
          Optimizer(column + ".optimizer", t.columns(c).optimizer());
      }
    }
  }

  void Expire(const std::string& path, const ExpireConfig& expire) {
    if (mode_ == Mode::kGeo) {
      Add(path,
          "is refused in Geo, where workers keep rows of their own; remove it, or set k_steps to "
          "0");
    }
    if (expire.after_steps() == 0 && expire.after_days() == 0)
      Add(path, "expires nothing; set after_steps or after_days, or remove it");
    if (expire.after_days() > 0 && job_.data().day().empty()) {
      Add(path + ".after_days",
          "needs the day of the data; set data.day, or name train_files whose paths have one "
          "day=YYYY-MM-DD");
    }
  }

  void Day() {
    const std::string& day = job_.data().day();
    if (day.empty()) return;
    const absl::Status parsed = ParseDataDay(day).status();
    if (!parsed.ok()) Add("data.day", std::string(parsed.message()));
    const bool asked = std::any_of(
        job_.tables().begin(), job_.tables().end(),
        [](const TableConfig& table) { return table.has_expire() || table.has_evict(); });
    if (!asked) Add("data.day", "has no effect without a table with expire or evict; remove it");
  }

  void UpdateAt(const std::string& path, const TableConfig& table) {
    // Without a value, the mode decides who updates.
    if (!table.has_update_at()) return;
    switch (table.update_at()) {
      case TableConfig::COLLECTIVE:
        if (mode_ != Mode::kSync) Add(path, OnlyInSync());
        break;
      case TableConfig::WORKER:
        if (mode_ != Mode::kGeo) {
          Add(path, absl::StrCat("WORKER contradicts mode ", ModeName(mode_),
                                 ", where pservers update; leave it out, or set k_steps > 0"));
        }
        break;
      default:
        if (mode_ == Mode::kGeo) {
          Add(path,
              "PSERVER contradicts mode geo, where each worker updates its own values; leave it "
              "out, or set k_steps to 0");
        }
    }
  }

  // Why tables cannot be COLLECTIVE in a mode other than sync.
  std::string OnlyInSync() const {
    return absl::StrCat("COLLECTIVE contradicts mode ", ModeName(mode_),
                        ", in which workers are at different steps and have no common mean; it is "
                        "for sync (a_sync=false): remove it");
  }

  void Optimizers() {
    const OptimizersConfig& o = job_.optimizers();
    Optimizer("optimizers.all", o.all());
    // FillOptimizers copies `all` to the parts without their own optimizer: a copy's problems
    // are reported once, at `all`.
    const std::string all = o.all().SerializeAsString();
    // Compared as bytes: within one process, messages with the same fields have the same bytes.
    const auto own = [&](const char* path, bool has, const OptimizerConfig& optimizer) {
      if (has && optimizer.SerializeAsString() != all) Optimizer(path, optimizer);
    };
    own("optimizers.dense", o.has_dense(), o.dense());
    own("optimizers.embedding", o.has_embedding(), o.embedding());
    own("optimizers.wide", o.has_wide(), o.wide());
    if (!(o.clip_global_norm() >= 0 && std::isfinite(o.clip_global_norm()))) {
      Add("optimizers.clip_global_norm",
          absl::StrCat(o.clip_global_norm(), " is not a norm; give 0 (off) or more"));
    }
  }

  void Optimizer(const std::string& path, const OptimizerConfig& optimizer) {
    if (optimizer.rule_case() == OptimizerConfig::RULE_NOT_SET) {
      Add(path, absl::StrCat("has no rule; add ", AnyOptimizerRule()));
      return;
    }
    const auto rule = UpdateRule::Create(optimizer);
    if (!rule.ok()) {
      // UpdateRule's messages begin with the field: "momentum.nesterov needs ...".
      const std::string text(rule.status().message());
      const size_t space = text.find(' ');
      Add(absl::StrCat(path, ".", text.substr(0, space)), text.substr(space + 1));
    }
  }

  void Strategy() {
    const ASyncConfigs& a = job_.strategy().a_sync_configs();
    const std::string path = "strategy.a_sync_configs.";
    if (a.k_steps() < 0) {
      Add(path + "k_steps",
          absl::StrCat(a.k_steps(), " is negative; give 0 for async, or the interval of Geo"));
    }
    if (!job_.strategy().a_sync() && a.k_steps() > 0) {
      Add(path + "k_steps",
          absl::StrCat(a.k_steps(),
                       " contradicts a_sync=false: sync has no local steps; set a_sync "
                       "to true for Geo, or k_steps to 0"));
      return;
    }
    const std::string mode = ModeName(mode_);
    if (a.has_gradients_to_wait() && a.gradients_to_wait() == 0) {
      Add(path + "gradients_to_wait",
          "0 is impossible; give at least 1, the number of frames in one update");
    }
    if (a.gradients_to_wait() > 1 && mode_ != Mode::kAsync) {
      Add(path + "gradients_to_wait",
          absl::StrCat(a.gradients_to_wait(), " contradicts mode ", mode,
                       "; it is for async (a_sync=true, k_steps=0): remove it"));
    }
    if (a.gradients_to_wait() > kMaxWorkers)
      Range(path + "gradients_to_wait", a.gradients_to_wait(), 1, kMaxWorkers);
    if (a.has_max_staleness() && mode_ != Mode::kAsync) {
      Add(path + "max_staleness",
          absl::StrCat(a.max_staleness(), " contradicts mode ", mode,
                       "; it is for async (a_sync=true, k_steps=0): remove it"));
    }
    if (a.geo_merge() != ASyncConfigs::MEAN && mode_ != Mode::kGeo) {
      Add(path + "geo_merge",
          absl::StrCat("SUM contradicts mode ", mode, "; it is for Geo (k_steps > 0): remove it"));
    }
    if (a.has_geo_cache_rows() && (mode_ != Mode::kGeo || a.geo_cache_rows() == 0)) {
      Add(path + "geo_cache_rows",
          mode_ != Mode::kGeo ? absl::StrCat(a.geo_cache_rows(), " contradicts mode ", mode,
                                             "; it is for Geo (k_steps > 0): remove it")
                              : "0 is impossible; give at least the rows of one batch");
    } else if (a.has_geo_cache_rows() && !parts_.no_sparse.empty()) {
      Add(path + "geo_cache_rows", absl::StrCat(a.geo_cache_rows(), " ", parts_.no_sparse));
    }
    if (a.has_hot_row_cache()) AddAll(FindHotRowCacheProblems(job_, parts_));
    if (job_.strategy().sync_configs().on_worker_loss() == SyncConfigs::SHRINK) Shrink();
    Dense();
  }

  void Dense() {
    const SyncConfigs& s = job_.strategy().sync_configs();
    const std::string path = "strategy.sync_configs.";
    // Options of an exchange that does not happen. Ignoring them would let a user measure what is
    // not there.
    if (!WorkersKeepDenseTables(job_)) {
      const std::string why =
          "has no effect without tables that workers keep; remove it, or set dense: COLLECTIVE, or "
          "update_at: COLLECTIVE of a table";
      if (s.engine() != SyncConfigs::AUTO) Add(path + "engine", why);
      if (s.has_fuse_mb()) Add(path + "fuse_mb", why);
      if (s.has_fuse_layers()) Add(path + "fuse_layers", why);
      if (s.has_comm_num()) Add(path + "comm_num", why);
      return;
    }
    if (s.dense() == SyncConfigs::COLLECTIVE && mode_ != Mode::kSync)
      Add(path + "dense", OnlyInSync());
    if (s.has_fuse_mb() && (s.fuse_mb() == 0 || s.fuse_mb() > kMaxFuseMb))
      Range(path + "fuse_mb", s.fuse_mb(), 1, kMaxFuseMb);
    if (s.has_fuse_layers() && (s.fuse_layers() == 0 || s.fuse_layers() > kMaxFuseLayers))
      Range(path + "fuse_layers", s.fuse_layers(), 1, kMaxFuseLayers);
    if (s.has_comm_num() && (s.comm_num() == 0 || s.comm_num() > kMaxCommNum))
      Range(path + "comm_num", s.comm_num(), 1, kMaxCommNum);
    if (s.engine() == SyncConfigs::NCCL && s.comm_num() > 1) {
      Add(path + "comm_num",
          absl::StrCat(s.comm_num(),
                       " contradicts engine NCCL: exchanges of several communicators "
                       "on one GPU may wait for each other for ever; remove it"));
    }
  }

  void Shrink() {
    const std::string path = "strategy.sync_configs.on_worker_loss";
    if (mode_ != Mode::kSync) {
      Add(path, absl::StrCat("SHRINK contradicts mode ", ModeName(mode_),
                             ", which continues while a worker is lost; it is for sync "
                             "(a_sync=false): remove it"));
    } else if (job_.data().assignment() == DataConfig::PER_RANK_FILES) {
      Add(path,
          "SHRINK contradicts data.assignment PER_RANK_FILES, where the files of a lost worker "
          "would not be trained; use WAIT or another assignment");
    }
    if (!CanCheckpoint(job_) && !job_.evaluate_only()) {
      Add(path,
          "SHRINK contradicts checkpoint.keep 0: the job continues from a checkpoint; remove one "
          "of them");
    }
    if (job_.recovery().has_max_losses() && job_.recovery().max_losses() == 0) {
      Add(path,
          "SHRINK contradicts recovery.max_losses 0, with which the first loss ends the job; "
          "remove one of them");
    }
  }

  void Exports() {
    if (!job_.has_export_()) return;
    const ExportConfig& e = job_.export_();
    if (!CanCheckpoint(job_)) {
      Add("export",
          job_.evaluate_only()
              ? "has no effect with evaluate_only, which trains nothing to export; remove "
                "it"
              : "contradicts checkpoint.keep 0: an export is made as a checkpoint; remove "
                "one of them");
      return;
    }
    if (mode_ == Mode::kGeo) {
      Add("export",
          "is not possible with Geo, whose pservers do not count the steps of a row; use "
          "k_steps 0, or sync");
    }
    const auto on_workers = [](const TableConfig& table) {
      return table.update_at() == TableConfig::COLLECTIVE;
    };
    if (job_.strategy().sync_configs().dense() == SyncConfigs::COLLECTIVE ||
        std::any_of(job_.tables().begin(), job_.tables().end(), on_workers)) {
      Add("export",
          "is not possible with dense tables that the workers keep (COLLECTIVE); use "
          "PSERVER");
    }
    if (!std::isfinite(e.every_s()) || e.every_s() < 0)
      Add("export.every_s", absl::StrCat(e.every_s(), " is not valid; give seconds above 0"));
    if (e.every_s() == 0 && e.every_steps() == 0)
      Add("export", "has no rule; give every_s or every_steps");
    if (e.every_s() > 0 && e.every_steps() > 0)
      Add("export.every_steps", "contradicts export.every_s; remove one of them");
    if (e.has_keep() && e.keep() == 0)
      Add("export.keep", "0 would keep no base; give at least 1, or remove `export`");
    if (ExportRoot(job_).empty())
      Add("export.dir", "is missing, and so is output_dir; give one of them");
    else if (ExportRoot(job_) == CheckpointRoot(job_))
      Add("export.dir", "is the folder of the checkpoints; give another one");
  }

  void Checkpoints() {
    const CheckpointConfig& c = job_.checkpoint();
    // As above: each option that would do nothing is named, and not only the first.
    if (!CanCheckpoint(job_)) {
      const bool evaluates = job_.evaluate_only();
      const std::string why =
          evaluates ? "has no effect with evaluate_only, which trains nothing to save; remove it"
                    : "contradicts checkpoint.keep 0, with which no checkpoint is made; remove one "
                      "of them";
      if (!c.dir().empty()) Add("checkpoint.dir", why);
      // With keep 0 these are defaults.
      if (c.has_every_steps() && (evaluates || c.every_steps() > 0))
        Add("checkpoint.every_steps", why);
      if (c.has_every_s() && (evaluates || c.every_s() != 0)) Add("checkpoint.every_s", why);
      if (c.has_every_epochs() && (evaluates || c.every_epochs() > 0))
        Add("checkpoint.every_epochs", why);
      if (c.has_at_end() && (evaluates || c.at_end())) Add("checkpoint.at_end", why);
      if (c.has_keep() && evaluates) Add("checkpoint.keep", why);
      return;
    }
    if (!(c.every_s() >= 0 && std::isfinite(c.every_s()))) {
      Add("checkpoint.every_s",
          absl::StrCat(c.every_s(), " is not a time; give 0 (none by time) or more seconds"));
    }
  }

  // Apart from checkpoints: a job may keep its best model and no checkpoint.
  void BestModel() {
    const CheckpointConfig& c = job_.checkpoint();
    if (job_.evaluate_only()) {
      if (c.save() != CheckpointConfig::FINAL)
        Add("checkpoint.save",
            "has no effect with evaluate_only, which trains nothing to save; remove it");
      return;
    }
    if (!CheckpointConfig::Save_IsValid(c.save()))
      Add("checkpoint.save", absl::StrCat(c.save(), " is unknown; give FINAL or BEST"));
    if (c.save() == CheckpointConfig::BEST && !HasEvaluationData(job_))
      Add("checkpoint.save", "BEST needs evaluations to compare; set data.eval_files");
    if (c.save() == CheckpointConfig::BEST && !c.save_final_model()) {
      Add("checkpoint.save",
          "BEST contradicts checkpoint.save_final_model false, which saves no model; remove one of "
          "them");
    }
  }

  void Recovery() {
    const RecoveryConfig& r = job_.recovery();
    if (r.has_wait_s() && !(r.wait_s() > 0 && std::isfinite(r.wait_s()))) {
      Add("recovery.wait_s",
          absl::StrCat(r.wait_s(),
                       " is not a time to wait for replacements; give seconds above 0, ",
                       "or recovery.max_losses: 0 for a job that ends with its first loss"));
    }
    if (r.replicas() > 1) {
      Add("recovery.replicas",
          absl::StrCat(r.replicas(), " copies are not supported; give 0 or 1"));
    }
    if (r.replicas() == 0) return;
    if (job_.evaluate_only()) {
      Add("recovery.replicas", "has no effect with evaluate_only, which trains nothing; remove it");
    } else if (mode_ == Mode::kSync) {
      Add("recovery.replicas",
          "contradicts mode sync, which loses no update anyway: it goes back to its newest "
          "checkpoint and ends with the same bits; give 0, and a smaller checkpoint.every_steps to "
          "go back less far");
    }
  }

  // Refuses settings that nothing would read.
  void Unused() {
    AddAll(rules_.FindUnused(job_));
    UnusedOptimizers();
    const std::string no_eval =
        " has no effect without data.eval_files; remove it or name the files";
    const EvalConfig& eval = job_.eval();
    if (!HasEvaluationData(job_) && eval.has_every_epochs())
      Add("eval.every_epochs", absl::StrCat(eval.every_epochs(), no_eval));
    if (!HasEvaluationData(job_) && eval.has_batch_size())
      Add("eval.batch_size", absl::StrCat(eval.batch_size(), no_eval));
    if (job_.evaluate_only() && job_.checkpoint().save_final_model()) {
      Add("checkpoint.save_final_model",
          "true has no effect with evaluate_only, which trains no new model; remove it");
    }
  }

  void UnusedOptimizers() {
    const OptimizersConfig& o = job_.optimizers();
    if (!parts_.embedding() && o.has_embedding()) Add("optimizers.embedding", parts_.no_embedding);
    if (!parts_.wide() && o.has_wide()) Add("optimizers.wide", parts_.no_wide);
    if (!parts_.dense() && o.has_dense()) Add("optimizers.dense", parts_.no_dense);
  }

  const JobConfig& job_;
  const Mode mode_;
  const ModelRules& rules_;
  const ModelParts parts_;
  std::vector<ConfigProblem> problems_;
};

}  // namespace

std::vector<ConfigProblem> FindProblems(const JobConfig& job, const ModelRules& rules) {
  return JobValidator(job, rules).Run();
}

}  // namespace sluice
