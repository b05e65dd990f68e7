#include "model/model_match.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/config/data_columns.h"
#include "common/config/data_day.h"
#include "common/config/data_format.h"
#include "common/config/mode.h"
#include "common/saved_model/checkpoint.h"
#include "common/saved_model/manifest.h"
#include "common/saved_model/model_tables.h"
#include "common/saved_model/saved_model.h"
#include "common/saved_model/shard_file_reader.h"
#include "model/feature_changes.h"
#include "model/features/cell.h"
#include "model/features/dense_rows.h"
#include "model/features/feature_schema.h"
#include "model/features/sparse_table_plan.h"
#include "model/model_spec.h"

namespace sluice {
namespace {

using Strings = google::protobuf::RepeatedPtrField<std::string>;

constexpr size_t kNamedValues = 3;       // most values of a list in a message
constexpr size_t kNamedDifferences = 5;  // most differences in a refusal

std::string Text(const std::string& value) { return QuotedCell(value); }
std::string Text(bool value) { return value ? "true" : "false"; }
std::string Text(double value) { return absl::StrCat(value); }
std::string Text(uint64_t value) { return absl::StrCat(value); }

std::string ListedValues(const std::vector<std::string>& values) {
  std::vector<std::string> named;
  for (size_t i = 0; i < std::min(values.size(), kNamedValues); ++i)
    named.push_back(QuotedCell(values[i]));
  std::string text = absl::StrJoin(named, ", ");
  if (values.size() > named.size())
    absl::StrAppend(&text, " and ", values.size() - named.size(), " more");
  return text;
}

std::vector<std::string> Without(const Strings& from, const Strings& what) {
  const std::set<std::string> taken(what.begin(), what.end());
  std::vector<std::string> left;
  for (const std::string& value : from) {
    if (taken.count(value) == 0) left.push_back(value);
  }
  return left;
}

const char* KindOf(const Feature& feature) {
  return feature.has_numeric()       ? "numeric"
         : feature.has_categorical() ? "categorical"
         : feature.has_cross()       ? "cross"
                                     : "nothing";
}

const std::string& ColumnOf(const Feature& feature) {
  const std::string& column =
      feature.has_numeric() ? feature.numeric().column() : feature.categorical().column();
  return column.empty() ? feature.name() : column;
}

std::string NormalizationOf(const NumericFeature& numeric) {
  if (numeric.has_min_max()) {
    return absl::StrCat("min_max ", numeric.min_max().min(), " to ", numeric.min_max().max());
  }
  if (numeric.has_z_score()) {
    return absl::StrCat("z_score mean ", numeric.z_score().mean(), " stddev ",
                        numeric.z_score().stddev());
  }
  return "none";
}

bool HasNumber(const NumericFeature& numeric) {
  return numeric.boundaries().empty() || numeric.keep_numeric();
}

bool HasSeveralValues(const DataConfig& data, const Feature& feature) {
  if (!feature.categorical().multi_value_delimiter().empty()) return true;
  return ValuesOf(data, ColumnOf(feature)) != CellValues::kOne;
}

// "in table "embedding" (wide 1, embedding 8)": the sparse table of a slot.
std::string RowsOf(const ModelSpec& model, const FeatureSchema::Slot& slot) {
  const TableConfig& table = model.tables()[model.sparse_tables()[slot.table]];
  return absl::StrCat("in table ", Text(table.name()), " (",
                      absl::StrJoin(table.columns(), ", ",
                                    [](std::string* to, const ColumnGroup& group) {
                                      absl::StrAppend(to, group.name(), " ", group.dim());
                                    }),
                      ")");
}

bool NamesColumnsByIndex(const DataConfig& data) { return FormatOf(data).numbered; }

bool IsCsv(const DataConfig& data) { return FormatOf(data).delimited; }

class Comparison {
 public:
  Comparison(const JobConfig& of_model, const JobConfig& job, const ModelList& models)
      : a_(of_model), b_(job), models_(models) {}

  absl::StatusOr<ModelDifferences> Run() {
    SLUICE_RETURN_IF_ERROR(CreateSpecs());
    CompareFeatures();
    CompareTables();
    ComparePlaces();
    CompareData();
    return std::move(found_);
  }

  // Lets the job's `tables` follow the features to their places in the saved tables of `manifest`.
  absl::StatusOr<ModelDifferences> RunForStart(const Manifest& manifest, StartCheck* start) {
    SLUICE_RETURN_IF_ERROR(CreateSpecs());
    if (!CanFollowFeatures(*specs_[0], *specs_[1])) return Run();
    follows_ = true;
    CompareFeatures();
    FeatureChanges changes =
        FollowFeatures({&a_, specs_[0].get()}, {&b_, specs_[1].get()}, manifest, &start->tables);
    for (std::string& why : changes.refused) Add(kRefused, std::move(why));
    start->notes = std::move(changes.notes);
    CompareData();
    return std::move(found_);
  }

 private:
  absl::Status CreateSpecs() {
    for (const int side : {0, 1}) {
      SLUICE_ASSIGN_OR_RETURN(specs_[side], ModelSpec::Create(side == 0 ? a_ : b_, models_));
    }
    return absl::OkStatus();
  }
  void CompareData() {
    CompareColumnOrder();
    CompareLabel();
    if (IsCsv(a_.data()) && IsCsv(b_.data()))
      CompareLists("data.csv.missing", a_.data().csv().missing(), b_.data().csv().missing());
  }

  using Kind = std::vector<std::string> ModelDifferences::*;
  // Refused: the model's values would be used for something else. Warned of: they fit, but may be
  // of less use.
  static constexpr Kind kRefused = &ModelDifferences::refused;
  static constexpr Kind kWarnings = &ModelDifferences::warnings;
  static constexpr Kind kFollowed = &ModelDifferences::followed;

  void Add(Kind kind, std::string text) { (found_.*kind).push_back(std::move(text)); }
  // Adds "WHAT is OLD in the model's job and NEW in this one" if the texts differ.
  void CompareText(Kind kind, const std::string& what, const std::string& old_text,
                   const std::string& new_text) {
    if (old_text == new_text) return;
    Add(kind,
        absl::StrCat(what, " is ", old_text, " in the model's job and ", new_text, " in this one"));
  }
  template <typename Value>
  void Compare(Kind kind, const std::string& what, const Value& old_value, const Value& new_value) {
    if (old_value != new_value) CompareText(kind, what, Text(old_value), Text(new_value));
  }
  // Compares the values as sets: their order does not matter.
  void CompareLists(const std::string& what, const Strings& old_values, const Strings& new_values);
  // Compares the values of a vocabulary whose order decides which row each has.
  void CompareRows(const std::string& what, const Strings& a, const Strings& b);
  void CompareFeatures();
  void CompareFeature(const Feature& a, const Feature& b);
  void CompareBoundaries(const std::string& what, const NumericFeature& a, const NumericFeature& b);
  void CompareNumeric(const std::string& name, const NumericFeature& a, const NumericFeature& b);
  void CompareCategorical(const std::string& name, const Feature& a, const Feature& b);
  // Rows are found by table, and a table's rows have one width.
  void CompareTables();
  // Dense weights belong to positions, so the inputs of each part must be in the same order.
  void ComparePlaces();
  void ComparePlace(const std::string& part, const std::vector<std::string>& a,
                    const std::vector<std::string>& b);
  // Compares the places in the line of columns that the configuration names.
  void CompareColumnOrder();
  void CompareLabel();
  bool SameFiles() const;

  const JobConfig& a_;
  const JobConfig& b_;
  const ModelList& models_;
  std::array<std::unique_ptr<ModelSpec>, 2> specs_;  // of the model's job and of this one
  bool follows_ = false;                             // features may have changed
  ModelDifferences found_;
};

void Comparison::CompareLists(const std::string& what, const Strings& old_values,
                              const Strings& new_values) {
  const std::vector<std::string> gone = Without(old_values, new_values),
                                 added = Without(new_values, old_values);
  std::vector<std::string> parts;
  if (!gone.empty()) parts.push_back(absl::StrCat("lacks ", ListedValues(gone)));
  if (!added.empty()) parts.push_back(absl::StrCat("also has ", ListedValues(added)));
  if (parts.empty()) return;
  Add(kWarnings,
      absl::StrCat(what, " ", absl::StrJoin(parts, " and "), ", compared with the model's job"));
}

void Comparison::CompareFeatures() {
  const auto find = [](const JobConfig& job, const std::string& name) {
    return std::find_if(job.features().begin(), job.features().end(),
                        [&](const Feature& feature) { return feature.name() == name; });
  };
  for (const Feature& feature : a_.features()) {
    const auto same = find(b_, feature.name());
    // Features are matched by name, since keys are hashed with it.
    if (same != b_.features().end()) {
      CompareFeature(feature, *same);
    } else {
      Add(follows_ ? kFollowed : kWarnings,
          absl::StrCat("feature ", Text(feature.name()),
                       " is in the model's job but not in this job"));
    }
  }
  for (const Feature& feature : b_.features()) {
    if (find(a_, feature.name()) != a_.features().end()) continue;
    Add(follows_ ? kFollowed : kWarnings,
        absl::StrCat("feature ", Text(feature.name()),
                     " is new: the model has no values for it, so training starts from initial "
                     "ones"));
  }
}

void Comparison::CompareFeature(const Feature& a, const Feature& b) {
  const std::string name = absl::StrCat("feature ", Text(a.name()), ": ");
  if (a.kind_case() != b.kind_case()) {
    Add(kRefused, absl::StrCat(name, "is ", KindOf(a), " in the model's job and ", KindOf(b),
                               " in this one"));
    return;
  }
  // The parts in their order, which is the order in which their keys are hashed.
  if (a.has_cross()) {
    CompareText(kRefused, name + "cross.features", absl::StrJoin(a.cross().features(), " x "),
                absl::StrJoin(b.cross().features(), " x "));
    Compare(kRefused, name + "cross.hash_buckets", a.cross().hash_buckets(),
            b.cross().hash_buckets());
  } else {
    // An index and a name may be the same column; nothing here can tell.
    const bool comparable = NamesColumnsByIndex(a_.data()) == NamesColumnsByIndex(b_.data());
    Compare(comparable ? kRefused : kWarnings, name + "column", ColumnOf(a), ColumnOf(b));
  }
  // Their names are the seeds of keys.
  Compare(kRefused, name + "embedding", EmbeddingNameOf(a), EmbeddingNameOf(b));
  CompareText(kRefused, name + "key", Feature::KeyRule_Name(a.key()),
              Feature::KeyRule_Name(b.key()));
  // Keys of a sparse table are hashes, and those of dense tables are numbers of rows.
  Compare(kRefused, name + "dense", IsDense(a), IsDense(b));
  const auto in_wide = [](const Feature& f) { return !f.has_in_wide() || f.in_wide(); };
  if (a.has_numeric()) {
    CompareNumeric(name, a.numeric(), b.numeric());
  } else {
    Compare(kWarnings, name + "in_wide", in_wide(a), in_wide(b));
  }
  if (a.has_categorical()) CompareCategorical(name, a, b);
}

void Comparison::CompareRows(const std::string& what, const Strings& a, const Strings& b) {
  for (int i = 0; i < std::max(a.size(), b.size()); ++i) {
    if (i < a.size() && i < b.size() && a[i] == b[i]) continue;
    CompareText(kRefused, absl::StrCat(what, "[", i, "], whose value has row ", i),
                i < a.size() ? Text(a[i]) : "missing", i < b.size() ? Text(b[i]) : "missing");
    return;
  }
}

void Comparison::CompareBoundaries(const std::string& what, const NumericFeature& a,
                                   const NumericFeature& b) {
  Compare(kRefused, absl::StrCat(what, ": their number"),
          static_cast<uint64_t>(a.boundaries_size()), static_cast<uint64_t>(b.boundaries_size()));
  // Comparing them one by one would only repeat that.
  if (a.boundaries_size() != b.boundaries_size()) return;
  for (int i = 0; i < a.boundaries_size(); ++i) {
    if (a.boundaries(i) == b.boundaries(i)) continue;
    Compare(kRefused, absl::StrCat(what, "[", i, "]"), a.boundaries(i), b.boundaries(i));
    return;
  }
}

void Comparison::CompareNumeric(const std::string& name, const NumericFeature& a,
                                const NumericFeature& b) {
  CompareText(kRefused, name + "numeric.date_part", DatePart_Name(a.date_part()),
              DatePart_Name(b.date_part()));
  CompareBoundaries(name + "numeric.boundaries", a, b);
  Compare(kRefused, name + "numeric.keep_numeric", a.keep_numeric(), b.keep_numeric());
  // Options of the number matter only where both jobs use it.
  if (!HasNumber(a) || !HasNumber(b)) return;
  // A vector may become longer where its numbers are followed to their places.
  if (!follows_ || a.dim() == 0 || a.dim() > b.dim())
    Compare(kRefused, name + "numeric.dim", uint64_t{a.dim()}, uint64_t{b.dim()});
  Compare(kRefused, name + "numeric.log", a.log(), b.log());
  CompareText(kRefused, name + "numeric.normalization", NormalizationOf(a), NormalizationOf(b));
  Compare(kWarnings, name + "numeric.default_value", a.default_value(), b.default_value());
}

void Comparison::CompareCategorical(const std::string& name, const Feature& a, const Feature& b) {
  const CategoricalFeature &from = a.categorical(), &to = b.categorical();
  CompareText(kRefused, name + "categorical.date_part", DatePart_Name(from.date_part()),
              DatePart_Name(to.date_part()));
  Compare(kRefused, name + "categorical.hash_buckets", from.hash_buckets(), to.hash_buckets());
  Compare(kWarnings, name + "categorical.separate_unknown", from.separate_unknown(),
          to.separate_unknown());
  CompareText(kRefused, name + "categorical.pooling",
              CategoricalFeature::Pooling_Name(from.pooling()),
              CategoricalFeature::Pooling_Name(to.pooling()));
  Compare(kWarnings, name + "categorical.missing_is_value", from.missing_is_value(),
          to.missing_is_value());
  const auto weighted = [](const DataConfig& data, const Feature& feature) {
    return !feature.categorical().weight_delimiter().empty() ||
           ValuesOf(data, ColumnOf(feature)) == CellValues::kWeighted;
  };
  Compare(kWarnings, name + "weights of values", weighted(a_.data(), a), weighted(b_.data(), b));
  Compare(kWarnings, name + "several values per example", HasSeveralValues(a_.data(), a),
          HasSeveralValues(b_.data(), b));
  // In such tables a value's row is its place in the vocabulary.
  if (from.dense() && to.dense() && to.hash_buckets() == 0) {
    CompareRows(name + "categorical.vocabulary", from.vocabulary(), to.vocabulary());
  } else if (from.vocabulary().empty() == to.vocabulary().empty()) {
    // A key is a hash of the value, so the order of a vocabulary does not matter.
    CompareLists(name + "categorical.vocabulary", from.vocabulary(), to.vocabulary());
  } else {
    Add(kWarnings, absl::StrCat(name, from.vocabulary().empty()
                                          ? "has a vocabulary, but none in the model's job"
                                          : "has no vocabulary, but one in the model's job"));
  }
}

void Comparison::CompareTables() {
  std::array<std::map<std::string, std::string>, 2> tables;  // by feature
  for (const int side : {0, 1}) {
    // CompareFeature compares `dense`.
    for (const FeatureSchema::Slot& slot : specs_[side]->schema()->slots()) {
      if (slot.rows.empty() && slot.table < specs_[side]->sparse_tables().size())
        tables[side][slot.name] = RowsOf(*specs_[side], slot);
    }
  }
  // Of many features only the first is named: a new width or `table` moves all that share a table.
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> moved;
  for (const Feature& feature : a_.features()) {
    const auto a = tables[0].find(feature.name()), b = tables[1].find(feature.name());
    if (a != tables[0].end() && b != tables[1].end() && a->second != b->second)
      moved[{a->second, b->second}].push_back(feature.name());
  }
  for (const auto& [rows, features] : moved) {
    const size_t more = features.size() - 1;
    CompareText(kRefused,
                absl::StrCat("feature ", Text(features[0]),
                             more == 0 ? "" : absl::StrCat(" (and ", more, " more)"), ": its row"),
                rows.first, rows.second);
  }
}

void Comparison::ComparePlaces() {
  std::map<std::string, std::array<std::vector<std::string>, 2>> parts;
  for (const int side : {0, 1}) {
    // By part, since each part has weights of its own.
    for (const auto& [part, inputs] : specs_[side]->ordered_inputs()) parts[part][side] = inputs;
  }
  for (const auto& [part, inputs] : parts) ComparePlace(part, inputs[0], inputs[1]);
}

void Comparison::ComparePlace(const std::string& part, const std::vector<std::string>& a,
                              const std::vector<std::string>& b) {
  const size_t most = std::max(a.size(), b.size());
  const bool moved = std::is_permutation(a.begin(), a.end(), b.begin(), b.end());
  for (size_t i = 0; i < most; ++i) {
    if (i < a.size() && i < b.size() && a[i] == b[i]) continue;
    Add(kRefused, absl::StrCat("features: input ", i + 1, " of the ", part, " part is ",
                               i < a.size() ? a[i] : "missing", " in the model's job and ",
                               i < b.size() ? b[i] : "missing",
                               moved ? " in this one (list the features in the model's order)"
                                     : " in this one (its features must be those of the model)"));
    return;  // the inputs after it have also moved
  }
}

bool Comparison::SameFiles() const {
  std::set<std::string> files(a_.data().train_files().begin(), a_.data().train_files().end());
  files.insert(a_.data().eval_files().begin(), a_.data().eval_files().end());
  const auto known = [&](const std::string& file) { return files.count(file) > 0; };
  const DataConfig& data = b_.data();
  const bool trains = !b_.evaluate_only() &&
                      std::any_of(data.train_files().begin(), data.train_files().end(), known);
  return trains || std::any_of(data.eval_files().begin(), data.eval_files().end(), known);
}

void Comparison::CompareColumnOrder() {
  if (IsCsv(a_.data()) != IsCsv(b_.data())) return;
  const std::vector<std::string> a = NamedColumns(a_.data()), b = NamedColumns(b_.data());
  // With a header the columns have names, and their order does not matter.
  if (a.empty() || b.empty()) return;
  for (const Feature& feature : b_.features()) {
    if (feature.has_cross()) continue;
    const std::string& column = ColumnOf(feature);
    const auto old_place = std::find(a.begin(), a.end(), column) - a.begin(),
               new_place = std::find(b.begin(), b.end(), column) - b.begin();
    const auto all = static_cast<ptrdiff_t>(a.size());
    // A column that the model's job lacks is new and not misplaced.
    if (old_place == new_place || old_place == all) continue;
    // Other files may order their columns differently; the same files cannot.
    Add(SameFiles() ? kRefused : kWarnings,
        absl::StrCat(IsCsv(b_.data()) ? "data.csv.columns" : "data.slots", ": ", Text(column),
                     " is column ", old_place + 1, " in the model's job and column ", new_place + 1,
                     " in this one"));
    return;
  }
}

void Comparison::CompareLabel() {
  const LabelConfig &a = a_.data().label(), &b = b_.data().label();
  const auto refuse_shared = [this](const Strings& from, const char* was, const Strings& to,
                                    const char* is) {
    for (const std::string& value : to) {
      if (std::find(from.begin(), from.end(), value) == from.end()) continue;
      Add(kRefused, absl::StrCat("data.label: ", Text(value), " is ", was,
                                 " in the model's job and ", is, " in this one"));
    }
  };
  refuse_shared(a.negative(), "negative", b.positive(), "positive");
  refuse_shared(a.positive(), "positive", b.negative(), "negative");
  if (NamesColumnsByIndex(a_.data()) == NamesColumnsByIndex(b_.data()))
    Compare(kWarnings, "data.label.column", a.column(), b.column());
  CompareLists("data.label.positive", a.positive(), b.positive());
  CompareLists("data.label.negative", a.negative(), b.negative());
  const auto threshold = [](const LabelConfig& label) {
    return label.has_positive_at_least() ? absl::StrCat(label.positive_at_least()) : "not set";
  };
  CompareText(kWarnings, "data.label.positive_at_least", threshold(a), threshold(b));
}

std::string FirstOf(const std::vector<std::string>& differences) {
  const size_t named = std::min(differences.size(), kNamedDifferences);
  std::string text = absl::StrJoin(differences.begin(), differences.begin() + named, "; ");
  if (named < differences.size())
    absl::StrAppend(&text, "; and ", differences.size() - named, " more differences");
  return text;
}

// Adds the features that differ to `misfit`, the error of the tables: they may be its cause.
absl::Status TablesDoNotFit(const std::string& field, const absl::Status& misfit,
                            const ModelDifferences& differences) {
  std::vector<std::string> all = differences.refused;
  for (const auto* more : {&differences.followed, &differences.warnings})
    all.insert(all.end(), more->begin(), more->end());
  return absl::InvalidArgumentError(absl::StrCat(
      field, ": ", misfit.message(), all.empty() ? "" : absl::StrCat(" (", FirstOf(all), ")")));
}

// Compares the features of the job that saved `dir` with those of `job`, whose tables follow them.
// `field` is the field that names `dir`, and `fits` compares the tables.
absl::StatusOr<StartCheck> CheckFeatures(
    const std::string& field, const std::string& dir, const Manifest& manifest,
    const JobConfig& job, const ModelList& models, Env* env,
    const std::function<absl::Status(const std::vector<TableConfig>& tables)>& fits) {
  StartCheck check;
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<ModelSpec> model, ModelSpec::Create(job, models));
  check.tables = model->tables();
  const auto of_model = ReadModelJob(dir, env);
  ModelDifferences differences;
  if (of_model.ok()) {
    Comparison comparison(*of_model, job, models);
    auto compared =
        job.evaluate_only() ? comparison.Run() : comparison.RunForStart(manifest, &check);
    if (compared.ok()) {
      differences = *std::move(compared);
    } else {
      differences.warnings.push_back(
          absl::StrCat("the features of ", dir,
                       " cannot be compared with the job's: ", compared.status().message()));
    }
  } else {
    differences.warnings.push_back(absl::StrCat(
        dir, " does not say which features it was trained with: ", of_model.status().message()));
  }
  const absl::Status tables = fits(check.tables);
  if (!tables.ok()) return TablesDoNotFit(field, tables, differences);
  if (!differences.refused.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": the model in ", dir, " does not mean what this job means: ",
                     FirstOf(differences.refused), "; give the features and columns of ", dir,
                     "/job.textproto, or a model that was trained with this job's"));
  }
  for (std::string& warning : differences.warnings)
    check.warnings.push_back(absl::StrCat(field, ": ", warning));
  for (std::string& note : check.notes) note.insert(0, field + ": ");
  return check;
}

// Days go forward: rows of a later day would have a negative age. A day that is so late that all
// rows of a table expire at once is probably a mistake: warns of it.
absl::Status CheckDay(const JobConfig& job, const CheckpointInfo& from, Env* env,
                      StartCheck* check) {
  if (job.data().day().empty()) return absl::OkStatus();
  SLUICE_ASSIGN_OR_RETURN(const int32_t day, ParseDataDay(job.data().day()));
  for (const TableConfig& table : from.manifest.tables()) {
    if (!table.has_expire() && !table.has_evict()) continue;
    SLUICE_ASSIGN_OR_RETURN(const auto files, FilesOfTable(from.dir, from.manifest, table));
    if (files.empty()) continue;
    // All shards of a table began their days together.
    SLUICE_ASSIGN_OR_RETURN(const auto reader,
                            ShardFileReader::Open(env, from.dir, table, *files[0]));
    const auto& days = reader->header().facts().days();
    if (days.empty()) continue;
    const int32_t last = days.rbegin()->day();
    if (last > day) {
      return absl::InvalidArgumentError(absl::StrCat(
          "data.day: ", job.data().day(), " is before ", FormatDataDay(last), ", the day of ",
          from.dir, " (initial_checkpoint); train the days in their order, or ",
          "start from a checkpoint that is not later"));
    }
    for (const TableConfig& next : check->tables) {
      if ((next.has_start() ? next.start().table() : next.name()) != table.name()) continue;
      const ExpireConfig& expire = next.expire();
      if (expire.after_days() == 0 || day - last <= int64_t{expire.after_days()}) continue;
      const std::string kept =
          expire.min_count() == 0
              ? ""
              : absl::StrCat(" but those with ", expire.min_count(), " updates (min_count)");
      check->warnings.push_back(
          absl::StrCat("data.day: all rows of table '", next.name(), "'", kept,
                       " expire at once: ", job.data().day(), " is more than ", expire.after_days(),
                       " days (expire.after_days) ", "after ", FormatDataDay(last), ", the day of ",
                       from.dir, " (initial_checkpoint); check the year and the month"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelDifferences> CompareWithModel(const JobConfig& of_model, const JobConfig& job,
                                                  const ModelList& models) {
  return Comparison(of_model, job, models).Run();
}

absl::StatusOr<StartCheck> CheckInitialModel(const JobConfig& job, const ModelList& models,
                                             Env* env) {
  const std::string& dir = job.initial_model();
  if (dir.empty()) return StartCheck();
  const auto manifest = ReadManifest(dir, env);
  if (!manifest.ok()) return StartCheck();
  return CheckFeatures(
      "initial_model", dir, *manifest, job, models, env,
      [&](const std::vector<TableConfig>& tables) { return CheckValues(dir, *manifest, tables); });
}

absl::StatusOr<StartCheck> CheckInitialCheckpoint(const JobConfig& job, const ModelList& models,
                                                  Env* env) {
  if (job.initial_checkpoint().empty()) return StartCheck();
  const auto found = FindCheckpoint(job.initial_checkpoint(), /*verify=*/false, env, nullptr);
  if (!found.ok()) return StartCheck();
  std::vector<std::string> fresh;
  SLUICE_ASSIGN_OR_RETURN(StartCheck check,
                          CheckFeatures("initial_checkpoint", found->dir, found->manifest, job,
                                        models, env, [&](const std::vector<TableConfig>& tables) {
                                          return CheckStart(found->dir, found->manifest, tables,
                                                            &fresh);
                                        }));
  SLUICE_RETURN_IF_ERROR(CheckDay(job, *found, env, &check));
  std::vector<TableConfig> tables = check.tables;
  SLUICE_RETURN_IF_ERROR(FixShards(&found->manifest, &tables));
  for (const std::string& table : fresh) {
    check.warnings.push_back(absl::StrCat("initial_checkpoint: table '", table, "' is not in ",
                                          found->dir, "; it starts with its initial values"));
  }
  const bool of_geo = found->manifest.checkpoint().mode() == ModeName(Mode::kGeo);
  if (of_geo || ModeOf(job.strategy()) == Mode::kGeo) {
    check.warnings.push_back(absl::StrCat(
        "initial_checkpoint: ", of_geo ? found->dir + " is of mode geo" : "this job is of mode geo",
        ", where the workers hold the optimizer state; the tables start with the values of ",
        found->dir, " and fresh optimizer state"));
  }
  return check;
}

}  // namespace sluice
