#include "cli/screen/job_summary.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/screen/format.h"
#include "common/config/mode.h"
#include "common/config/own_data.h"
#include "common/places/places_env.h"
#include "common/table/table_layout.h"
#include "model/built_in_models.h"
#include "model/data/expand_files.h"
#include "model/features/feature_schema.h"
#include "model/model_spec.h"

namespace sluice::cli {
namespace {

constexpr size_t kListedFeatures = 8;  // of a sparse table
constexpr size_t kListedTables = 16;
// Jobs of one width have this table, whose features need no list.
constexpr char kUsualTable[] = "embedding";

using Patterns = google::protobuf::RepeatedPtrField<std::string>;

// "2 files (3.9 MiB)", or the patterns when they match no file on this host.
std::string DescribeFiles(const Patterns& patterns) {
  const auto files = ExpandFiles(patterns, AllPlaces());
  if (!files.ok()) {
    return absl::StrCat(patterns.Get(0), patterns.size() > 1
                                             ? absl::StrCat(" and ", patterns.size() - 1, " more")
                                             : "");
  }
  uint64_t bytes = 0;
  for (const std::string& file : *files) {
    // A file that has vanished meanwhile is left out: the figure is for people, and the worker
    // reports the file.
    bytes += AllPlaces()->FileSize(file).value_or(0);
  }
  return absl::StrCat(Counted(files->size(), "file"), " (", ByteCount(bytes), ")");
}

// "C1, C2, C3, C4, C5, C6, C7, C8 and 18 more".
std::string ListNames(const std::vector<std::string>& names) {
  if (names.size() <= kListedFeatures) return absl::StrJoin(names, ", ");
  return absl::StrCat(absl::StrJoin(names.begin(), names.begin() + kListedFeatures, ", "), " and ",
                      names.size() - kListedFeatures, " more");
}

uint64_t ValuesOfRow(const TableConfig& table) {
  uint64_t values = 0;
  for (const ColumnGroup& group : table.columns()) values += group.dim();
  return values;
}

// How many rows a worker keeps of all sparse tables together, if each of several has a limit.
std::vector<std::string> NotesOnKeptRows(const JobConfig& job) {
  const ASyncConfigs& configs = job.strategy().a_sync_configs();
  const bool geo = ModeOf(job.strategy()) == Mode::kGeo;
  const uint64_t rows = geo ? configs.geo_cache_rows() : configs.hot_row_cache().rows();
  if (rows == 0) return {};
  const auto model = ModelSpec::Create(job, BuiltInSpecs());
  const uint64_t tables = model.ok() ? (*model)->sparse_tables().size() : 0;
  if (tables < 2) return {};
  const uint64_t all = rows > UINT64_MAX / tables ? UINT64_MAX : rows * tables;
  return {absl::StrCat("note: ", geo ? "geo_cache_rows" : "hot_row_cache.rows",
                       " counts for each of ", tables, " sparse tables: a worker keeps up to ",
                       Counted(all, "row"), " in all")};
}

// How many rows a limit in GiB is.
std::vector<std::string> NotesOnLimits(const JobConfig& job) {
  const auto model = ModelSpec::Create(job, BuiltInSpecs());
  if (!model.ok()) return {};
  google::protobuf::RepeatedPtrField<TableConfig> tables;
  for (const TableConfig& table : (*model)->tables())
    if (table.max_gib() > 0) *tables.Add() = table;
  ResolveShards(/*num_pservers=*/1, &tables);
  const auto layouts = CreateTableLayouts(tables, /*seed=*/0);
  std::vector<std::string> notes;
  if (!layouts.ok()) return notes;
  for (const auto& table : *layouts) {
    notes.push_back(absl::StrCat("note: max_gib ", table->config().max_gib(), " of table ",
                                 table->name(), " is ", Counted(table->row_limit(), "row"), " of ",
                                 table->most_row_bytes(), " bytes"));
  }
  return notes;
}

uint64_t Elements(const TableConfig& table) {
  uint64_t elements = 1;
  for (const uint64_t n : table.shape()) elements *= n;
  return elements;
}

}  // namespace

std::string BatchText(const JobConfig& job) {
  const uint64_t merged = MergedBatches(job);
  return merged == 1 ? absl::StrCat(job.train().batch_size())
                     : absl::StrCat(job.train().batch_size(), " x ", merged, " merged");
}

std::string Describe(const JobConfig& job) {
  const Mode mode = ModeOf(job.strategy());
  std::string text =
      absl::StrCat(job.name(), ": ", job.evaluate_only() ? "evaluate only" : ModeName(mode));
  if (mode == Mode::kGeo) absl::StrAppend(&text, " (k_steps ", KSteps(job.strategy()), ")");
  absl::StrAppend(&text, ", ", Counted(job.worker_num(), "worker"));
  if (!job.evaluate_only()) {
    absl::StrAppend(&text, " x batch ", BatchText(job), ", ",
                    Counted(job.train().epochs(), "epoch"), ", seed ", job.train().seed());
  }
  return text;
}

std::vector<std::string> NotesOn(const JobConfig& job) {
  std::vector<std::string> notes;
  if (!job.output_dir().empty() && AllPlaces()->Exists(job.output_dir() + "/result.json")) {
    notes.push_back(
        absl::StrCat("note: this job replaces the earlier result in ", job.output_dir()));
  }
  for (std::string& note : NotesOnLimits(job)) notes.push_back(std::move(note));
  if (job.evaluate_only()) return notes;
  if (ModeOf(job.strategy()) != Mode::kSync) {
    for (const char* field : {"shuffle_lanes", "shuffle_window"}) {
      const auto* const known = DataConfig::descriptor()->FindFieldByName(field);
      if (job.data().GetReflection()->HasField(job.data(), known))
        notes.push_back(
            absl::StrCat("note: data.", field, " has no effect: only sync mode uses lanes"));
    }
    for (std::string& note : NotesOnKeptRows(job)) notes.push_back(std::move(note));
    return notes;
  }
  const std::string differ =
      absl::StrCat("note: ", job.worker_num(), " workers will not give the result of one worker: ");
  if (job.worker_num() > 1 && job.optimizers().clip_global_norm() > 0) {
    notes.push_back(absl::StrCat(differ, "clip_global_norm acts on each worker's own gradient"));
  }
  if (job.worker_num() > 1 && job.data().assignment() == DataConfig::PER_RANK_FILES &&
      !ProgramGivesData(job)) {
    notes.push_back(
        absl::StrCat(differ, "data.assignment PER_RANK_FILES gives each worker its own files"));
  }
  const uint32_t lanes = job.data().shuffle_lanes();
  // Uneven lanes cost speed and nothing else, so this is no error.
  if (job.data().assignment() == DataConfig::GLOBAL && lanes % job.worker_num() != 0) {
    notes.push_back(absl::StrCat("note: ", job.worker_num(), " workers share data.shuffle_lanes ",
                                 lanes, " unevenly: some have ", lanes / job.worker_num(),
                                 " lanes, others one more; a multiple of worker_num is fastest"));
  }
  if (job.data().has_task_bytes()) {
    notes.push_back(absl::StrCat("note: data.task_bytes ", job.data().task_bytes(),
                                 " has no effect: sync mode has no tasks"));
  }
  return notes;
}

std::string DescribeData(const JobConfig& job) {
  const DataConfig& data = job.data();
  if (ProgramGivesData(job)) {
    return HasEvaluationData(job) ? "data: the program's own, to train on and to evaluate on"
                                  : "data: the program's own";
  }
  std::string text = absl::StrCat("data: ", DataConfig::Format_Name(data.format()));
  if (!job.evaluate_only())
    absl::StrAppend(&text, ", train on ", DescribeFiles(data.train_files()));
  return data.eval_files().empty()
             ? text
             : absl::StrCat(text, ", evaluate on ", DescribeFiles(data.eval_files()));
}

std::string DescribeModel(const JobConfig& job) {
  const auto model = ModelSpec::Create(job, BuiltInSpecs());
  if (!model.ok()) return absl::StrCat("model: ", model.status().message());
  std::string text = absl::StrCat("model: ", ModelNameOf(job.model()), ", ",
                                  Counted(job.features_size(), "feature"), ", ",
                                  Counted((*model)->tables().size(), "table"), ": ");
  uint64_t dense = 0;
  std::vector<std::string> sparse;
  for (const TableConfig& table : (*model)->tables()) {
    if (table.kind() == TableConfig::DENSE) {
      dense += Elements(table);
      continue;
    }
    sparse.push_back(
        absl::StrCat("rows of ", Counted(ValuesOfRow(table), "value"), " in ", table.name()));
  }
  if (dense > 0) absl::StrAppend(&text, Counted(dense, "dense value"), sparse.empty() ? "" : ", ");
  // DescribeSparseTables lists them.
  if (sparse.size() > 1) return absl::StrCat(text, Counted(sparse.size(), "sparse table"));
  return text + absl::StrJoin(sparse, ", ");
}

std::vector<std::string> DescribeSparseTables(const JobConfig& job) {
  const auto model = ModelSpec::Create(job, BuiltInSpecs());
  if (!model.ok() || (*model)->sparse_tables().empty()) return {};
  const TableConfig& first = (*model)->tables()[(*model)->sparse_tables()[0]];
  if ((*model)->sparse_tables().size() == 1 && first.name() == kUsualTable) return {};
  std::vector<std::vector<std::string>> features((*model)->sparse_tables().size());
  for (const FeatureSchema::Slot& slot : (*model)->schema()->slots())
    features[slot.table].push_back(slot.name);
  std::vector<std::string> lines;
  for (size_t t = 0; t < std::min(features.size(), kListedTables); ++t) {
    const TableConfig& table = (*model)->tables()[(*model)->sparse_tables()[t]];
    lines.push_back(absl::StrCat("table ", table.name(), ": rows of ",
                                 Counted(ValuesOfRow(table), "value"), " for ",
                                 ListNames(features[t])));
  }
  if (features.size() > kListedTables)
    lines.push_back(absl::StrCat("... and ", features.size() - kListedTables, " more tables"));
  return lines;
}

std::vector<std::string> ModelLines(const JobConfig& job) {
  std::vector<std::string> lines = DescribeSparseTables(job);
  lines.insert(lines.begin(), DescribeModel(job));
  return lines;
}

std::string DescribeOutput(const JobConfig& job, const std::string& job_id) {
  const std::string folder =
      job.output_dir().empty() ? absl::StrCat("output/", job_id) : job.output_dir();
  return absl::StrCat("output: ", folder, "; effective configuration: ", folder, "/job.textproto");
}

void PrintJob(const std::string& head, const JobConfig& job, std::ostream* out) {
  *out << head << "\n";
  for (const std::string& note : NotesOn(job)) *out << note << "\n";
  *out << DescribeData(job) << "\n";
  for (const std::string& line : ModelLines(job)) *out << line << "\n";
  out->flush();
}

}  // namespace sluice::cli
