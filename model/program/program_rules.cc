#include "model/program/program_rules.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/config/mode.h"
#include "common/config/own_data.h"
#include "common/optimizer/update_rule.h"
#include "model/features/sparse_table_plan.h"

namespace sluice {
namespace {

constexpr uint32_t kMaxCollectionDim = 4096;
constexpr size_t kLongestCollection = 64;
constexpr size_t kLongestParameter = 512;
// A worker holds several times as much: values, gradients and optimizer state.
constexpr uint64_t kMaxParameterElements = uint64_t{1} << 31;

bool IsCollectionName(const std::string& name) {
  return !name.empty() && name.size() <= kLongestCollection &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isalnum(c) || c == '_' || c == '-' || c == '.';
         });
}

void CheckOptimizer(const std::string& path, const OptimizerConfig& optimizer,
                    std::vector<ConfigProblem>* problems) {
  if (optimizer.rule_case() == OptimizerConfig::RULE_NOT_SET) {
    problems->push_back({path, "has no rule; name one, such as sgd or adam"});
    return;
  }
  const absl::Status rule = UpdateRule::Create(optimizer).status();
  if (!rule.ok()) problems->push_back({path, std::string(rule.message())});
}

// A declaration is checked feature by feature, so each is found once.
using FeaturesByName = std::map<std::string, const Feature*>;

void CheckCollection(const std::string& path, const ProgramConfig::Collection& collection,
                     const FeaturesByName& features, std::vector<ConfigProblem>* problems) {
  const auto add = [&](const std::string& field, const std::string& text) {
    problems->push_back({path + field, text});
  };
  if (!IsCollectionName(collection.name())) {
    add(".name", absl::StrCat("'", collection.name(), "' is no name; give 1 to ",
                              kLongestCollection, " of A-Z a-z 0-9 _ . -"));
  }
  AddIfOutOfRange(path + ".dim", collection.dim(), 1, kMaxCollectionDim, problems);
  if (collection.features().empty())
    add(".features", "is empty; name the features that the collection looks up");
  std::set<std::string> seen;
  for (const std::string& name : collection.features()) {
    const auto found = features.find(name);
    if (!seen.insert(name).second) {
      add(".features", absl::StrCat("names '", name, "' twice; name it once"));
    } else if (found == features.end()) {
      add(".features", absl::StrCat("names '", name,
                                    "', which the job does not declare; declare it, or remove it"));
    } else if (!HasKeys(*found->second)) {
      add(".features",
          absl::StrCat("names '", name,
                       "', which is a number and has no keys; make it categorical, give "
                       "it boundaries, or remove it here"));
    }
  }
  AddInitializerProblems(path + ".initializer", collection.initializer(), problems);
  if (collection.has_optimizer())
    CheckOptimizer(path + ".optimizer", collection.optimizer(), problems);
}

void CheckParameter(const std::string& path, const ProgramConfig::Parameter& parameter,
                    std::vector<ConfigProblem>* problems) {
  if (parameter.name().empty() || parameter.name().size() > kLongestParameter) {
    problems->push_back(
        {path + ".name", absl::StrCat("has ", parameter.name().size(), " characters; give 1 to ",
                                      kLongestParameter)});
  }
  uint64_t elements = 1;
  for (const uint64_t n : parameter.shape()) {
    // Divided, because a product of sizes may overflow.
    elements = n == 0 || elements > kMaxParameterElements / n ? 0 : elements * n;
    if (elements == 0) break;
  }
  if (elements == 0 || parameter.shape().empty()) {
    problems->push_back(
        {path + ".shape", absl::StrCat("of '", parameter.name(), "' must have 1 to ",
                                       kMaxParameterElements, " elements in all its dimensions")});
  }
  if (!parameter.has_optimizer()) return;
  if (parameter.buffer()) {
    problems->push_back(
        {path + ".optimizer", absl::StrCat("of the buffer '", parameter.name(),
                                           "' has no effect: buffers are averaged; remove it")});
  } else {
    CheckOptimizer(path + ".optimizer", parameter.optimizer(), problems);
  }
}

// What programs do not do yet. Refused by name, since it would be wrong without a word.
void FindUnsupported(const JobConfig& job, std::vector<ConfigProblem>* problems) {
  const bool buffers = std::any_of(job.model().program().parameters().begin(),
                                   job.model().program().parameters().end(),
                                   [](const auto& p) { return p.buffer(); });
  if (buffers && ModeOf(job.strategy()) == Mode::kGeo &&
      job.strategy().a_sync_configs().geo_merge() == ASyncConfigs::SUM) {
    problems->push_back({"strategy.a_sync_configs.geo_merge",
                         "SUM would add up the moves that all workers make of the program's "
                         "buffers, such as running means; use MEAN"});
  }
  const bool async = ModeOf(job.strategy()) == Mode::kAsync;
  if (buffers && async && job.strategy().a_sync_configs().gradients_to_wait() > 1) {
    problems->push_back({"strategy.a_sync_configs.gradients_to_wait",
                         "would take the mean of moves of the program's buffers, such as running "
                         "means, that are shares of worker_num already; remove it"});
  }
  if (MergedBatches(job) > 1) {
    problems->push_back({"strategy.sync_configs.gradient_merge_steps",
                         "does not apply to programs yet; remove it, or raise train.batch_size"});
  }
  if (buffers && job.optimizers().clip_global_norm() > 0) {
    problems->push_back(
        {"optimizers.clip_global_norm",
         "would also clip the program's buffers; remove it, and clip parameters in the program "
         "between backward and step, and rows by clip_row_norm of their optimizer"});
  }
  for (int i = 0; i < job.features_size(); ++i) {
    if (!job.features(i).has_embedding_dim()) continue;
    problems->push_back({absl::StrCat("features[", i, "].embedding_dim"),
                         "has no effect: the program's collections say how wide their values are; "
                         "remove it"});
  }
}

// What a job must not have when the program gives the data: nothing would read it.
void FindProblemsOfSource(const JobConfig& job, std::vector<ConfigProblem>* problems) {
  const DataConfig& data = job.data();
  const auto refuse = [&](const char* field, bool given) {
    if (!given) return;
    problems->push_back({absl::StrCat("data.", field),
                         "describes files, but without data.train_files the program gives the data "
                         "(source=); remove it"});
  };
  refuse("format", data.format() != DataConfig::FORMAT_UNSPECIFIED);
  // The columns of a table may have texts that are missing values.
  CsvFormat csv = data.csv();
  csv.clear_missing();
  refuse("csv", csv.ByteSizeLong() > 0);
  refuse("slots", !data.slots().empty());
  refuse("drop_last", data.drop_last());
  refuse("task_bytes", data.has_task_bytes());
  refuse("max_bad_lines", data.max_bad_lines() > 0);
}

}  // namespace

FeatureUse ProgramUseOf(const JobConfig& job) {
  FeatureUse use;
  use.numbers.wide = false;
  use.keys.wide = false;
  use.keys.needs = "no collection of the program looks it up";
  use.several_tables = true;
  use.by_collections = true;
  for (const ProgramConfig::Collection& from : job.model().program().collections()) {
    FeatureUse::Collection to;
    to.name = from.name();
    to.dim = from.dim();
    to.features.assign(from.features().begin(), from.features().end());
    use.collections.push_back(std::move(to));
  }
  return use;
}

void ProgramRules::FillDefaults(JobConfig* job) const {
  ProgramConfig* program = job->mutable_model()->mutable_program();
  for (ProgramConfig::Collection& collection : *program->mutable_collections()) {
    if (collection.initializer().kind_case() == Initializer::KIND_NOT_SET) {
      collection.mutable_initializer()->mutable_uniform()->set_min(-0.05f);
      collection.mutable_initializer()->mutable_uniform()->set_max(0.05f);
    }
    if (collection.optimizer().rule_case() != OptimizerConfig::RULE_NOT_SET)
      *collection.mutable_optimizer() = WithDefaults(collection.optimizer());
  }
  for (ProgramConfig::Parameter& parameter : *program->mutable_parameters()) {
    if (parameter.optimizer().rule_case() != OptimizerConfig::RULE_NOT_SET)
      *parameter.mutable_optimizer() = WithDefaults(parameter.optimizer());
  }
  // A source is of one rank, as files of its own would be.
  if (ProgramGivesData(*job)) job->mutable_data()->set_assignment(DataConfig::PER_RANK_FILES);
  // The user's own starting point has the values that the program should go on from.
  if (job->initial_model().empty() && job->initial_checkpoint().empty() && !job->evaluate_only())
    job->set_initial_model(program->initial_values());
}

ModelParts ProgramRules::PartsOf(const JobConfig& job) const {
  const ProgramConfig& program = job.model().program();
  ModelParts parts;
  if (program.parameters().empty())
    parts.no_dense = "has no effect: the program has no parameters; remove it";
  if (program.collections().empty())
    parts.no_embedding = "has no effect: the program has no collections; remove it";
  parts.no_wide = "has no effect: a program has no wide part; remove it";
  return parts;
}

std::vector<ConfigProblem> ProgramRules::FindProblems(const JobConfig& job) const {
  const ProgramConfig& program = job.model().program();
  std::vector<ConfigProblem> problems;
  FindUnsupported(job, &problems);
  if (ProgramGivesData(job)) FindProblemsOfSource(job, &problems);
  FeaturesByName features;
  for (const Feature& feature : job.features()) features[feature.name()] = &feature;
  std::set<std::string> names;
  for (int i = 0; i < program.collections_size(); ++i) {
    const std::string path = absl::StrCat("model.program.collections[", i, "]");
    const ProgramConfig::Collection& collection = program.collections(i);
    CheckCollection(path, collection, features, &problems);
    if (!names.insert(collection.name()).second) {
      problems.push_back({path + ".name", absl::StrCat("'", collection.name(),
                                                       "' is the name of another collection; give "
                                                       "each a name of its own")});
    }
  }
  names.clear();
  for (int i = 0; i < program.parameters_size(); ++i) {
    const std::string path = absl::StrCat("model.program.parameters[", i, "]");
    CheckParameter(path, program.parameters(i), &problems);
    if (!names.insert(program.parameters(i).name()).second) {
      problems.push_back({path + ".name", absl::StrCat("'", program.parameters(i).name(),
                                                       "' is the name of another parameter")});
    }
  }
  if (program.collections().empty() && program.parameters().empty()) {
    problems.push_back(
        {"model.program",
         "declares neither collections nor parameters, so there is nothing to train"});
  }
  if (!problems.empty()) return problems;
  // Features that contradict each other.
  const auto plan = PlanSparseTables(job, ProgramUseOf(job));
  if (!plan.ok()) {
    problems.push_back({FieldOf(plan.status()), std::string(plan.status().message())});
    return problems;
  }
  // Names of tables are names of files, and say which table an override means.
  for (const SparseTablePlan::Table& table : plan->tables) {
    if (names.count(table.name) == 0) continue;
    problems.push_back(
        {"model.program.parameters",
         absl::StrCat("has '", table.name,
                      "', and so is a sparse table called; give the parameter another "
                      "name, or the features another `table`")});
  }
  return problems;
}

std::vector<ConfigProblem> ProgramRules::FindUnused(const JobConfig&) const { return {}; }

}  // namespace sluice
