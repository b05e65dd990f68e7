#include "model/features/feature_compiler.h"

#include <cmath>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/config_problem.h"
#include "common/config/data_format.h"
#include "common/config/feature_keys.h"
#include "common/config/own_data.h"
#include "model/features/dense_rows.h"
#include "model/features/sparse_table_plan.h"

namespace sluice {
namespace {

template <typename... Parts>
absl::Status FeatureError(const Feature& feature, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("feature \"", feature.name(), "\": ", parts...));
}

constexpr uint32_t kMaxVector = 65536;           // numbers of a feature
constexpr size_t kMaxNumbers = size_t{1} << 20;  // of a job

std::string PathOf(int feature) { return absl::StrCat("features[", feature, "]"); }

// The parts of the model that use a feature's number, or its keys.
struct Use {
  bool wide;
  bool deep;
  bool any() const { return wide || deep; }
};

bool Bucketed(const Feature& feature) {
  return feature.has_numeric() && feature.numeric().boundaries_size() > 0;
}

// As many rows as the feature has, from 0 on.
RowRange RowsOf(const Feature& feature) { return {0, IsDense(feature) ? DenseRowsOf(feature) : 0}; }

// Null for WHOLE.
absl::StatusOr<std::shared_ptr<const DateFormat>> DateOf(const Feature& feature, DatePart part,
                                                         const std::string& format) {
  if (!DatePart_IsValid(part)) {
    return FeatureError(feature, "date_part is unknown; use one of YEAR, MONTH, DAY_OF_MONTH, ...");
  }
  if (part == WHOLE) {
    if (format.empty()) return std::shared_ptr<const DateFormat>();
    return FeatureError(feature, "date_format \"", format,
                        "\" has no effect without date_part; set date_part, e.g. HOUR");
  }
  auto compiled = DateFormat::Create(format, part);
  if (!compiled.ok()) return FeatureError(feature, compiled.status().message());
  return std::make_shared<const DateFormat>(*std::move(compiled));
}

// The error when no part of the model uses the feature's number (`number`) or its keys.
absl::Status Unused(const Feature& feature, bool number, const FeatureUse& use) {
  // The condition is the model's, which alone knows its parts.
  const std::string& needs = number ? use.numbers.needs : use.keys.needs;
  return FeatureError(feature,
                      number && Bucketed(feature) ? "keep_numeric"
                      : number                    ? "its number"
                                                  : "it",
                      " has no effect: no part of the model uses it",
                      needs.empty() ? "" : absl::StrCat(" (", needs, ")"), "; remove it");
}

uint64_t SeedOf(const Feature& feature) { return SlotSeed(EmbeddingNameOf(feature)); }

const std::string& ColumnOf(const Feature& feature) {
  const std::string& column = feature.categorical().column();
  return column.empty() ? feature.name() : column;
}

class Compiler {
 public:
  Compiler(const JobConfig& job, const FeatureUse& use) : job_(job), use_(use) {
    for (const FeatureUse::Collection& collection : use.collections)
      looked_up_.insert(collection.features.begin(), collection.features.end());
  }
  absl::StatusOr<CompiledFeatures> Run();

 private:
  absl::Status CompileLabelAndWeight();
  absl::Status CheckDense() const;
  absl::Status CheckKeys() const;
  absl::Status IndexName(int feature);
  // Checks the parts of a cross and gives each the index of its key.
  absl::Status IndexParts(const Feature& cross);
  absl::Status CompileFeature(const Feature& feature);
  absl::Status CheckEmbeddingDim(const Feature& feature) const;
  absl::Status CompileNumeric(const Feature& feature, int column);
  // The fields of a vector.
  absl::Status CompileVector(const Feature& feature, CompiledNumeric* numeric) const;
  // Adds the numbers, which features may not call by the names of those of a vector.
  absl::Status AddNumbers(const Feature& feature, CompiledNumeric numeric);
  absl::Status CompileBuckets(const Feature& feature, int column);
  absl::Status CompileCategorical(const Feature& feature, int column);
  // For columns whose values have weights (CellValues::kWeighted).
  absl::Status CompileWeights(const Feature& feature, CompiledCategory* category) const;
  // The delimiters of cells with several values, and of their weights.
  absl::Status CompileDelimiters(const Feature& feature, CompiledCategory* category) const;
  absl::Status CompileCross(const Feature& feature);
  // Adds the category as a slot, as a part of crosses, or both.
  absl::Status AddCategory(const Feature& feature, CompiledCategory category,
                           CategoricalFeature::Pooling pooling);
  absl::StatusOr<int> Column(const Feature& feature, const std::string& declared);
  // Numbers the rows of all dense slots (FeatureSchema::Slot).
  void PlaceRows();
  // Sets the sparse table of each slot.
  absl::Status PlaceKeys();
  static Use UseOf(const Feature& feature, const FeatureUse::Parts& parts) {
    return {InWide(feature) && parts.wide, InDeep(feature) && parts.deep};
  }
  Use KeyUseOf(const Feature& feature) const {
    if (!use_.by_collections) return UseOf(feature, use_.keys);
    return {false, looked_up_.contains(feature.name())};
  }

  const JobConfig& job_;
  const FeatureUse& use_;
  CompiledFeatures out_;
  absl::flat_hash_map<std::string, const Feature*> by_name_;
  absl::flat_hash_map<std::string, int> parts_;  // feature name -> part index
  absl::flat_hash_set<std::string> looked_up_;   // features of collections
  absl::flat_hash_map<std::string, int> columns_;
};

absl::StatusOr<CompiledFeatures> Compiler::Run() {
  SLUICE_RETURN_IF_ERROR(AtField("data.label", CompileLabelAndWeight()));
  for (int i = 0; i < job_.features_size(); ++i)
    SLUICE_RETURN_IF_ERROR(AtField(PathOf(i), IndexName(i)));
  SLUICE_RETURN_IF_ERROR(CheckDense());
  SLUICE_RETURN_IF_ERROR(CheckKeys());
  for (int i = 0; i < job_.features_size(); ++i)
    SLUICE_RETURN_IF_ERROR(AtField(PathOf(i), IndexParts(job_.features(i))));
  // Names and parts come first, because a cross may be declared before its parts.
  out_.part_categories.assign(parts_.size(), kNone);
  for (int i = 0; i < job_.features_size(); ++i)
    SLUICE_RETURN_IF_ERROR(AtField(PathOf(i), CompileFeature(job_.features(i))));
  PlaceRows();
  SLUICE_RETURN_IF_ERROR(PlaceKeys());
  return std::move(out_);
}

absl::Status Compiler::CheckKeys() const {
  const std::vector<ConfigProblem> problems = FindKeyProblems(job_);
  if (problems.empty()) return absl::OkStatus();
  const ConfigProblem& first = problems.front();
  return AtField(first.path,
                 absl::InvalidArgumentError(absl::StrCat(first.path, ": ", first.text)));
}

absl::Status Compiler::PlaceKeys() {
  SLUICE_ASSIGN_OR_RETURN(const SparseTablePlan plan, PlanSparseTables(job_, use_));
  // Slots are in the order of the features, some of which have none.
  size_t slot = 0;
  for (int i = 0; i < job_.features_size() && slot < out_.slot_info.size(); ++i) {
    const Feature& feature = job_.features(i);
    if (out_.slot_info[slot].name != feature.name()) continue;
    const uint32_t table = out_.slot_info[slot++].table = plan.table_of[i];
    if (table == 0 || use_.several_tables) continue;
    return AtField(PathOf(i),
                   FeatureError(feature, "has rows in the sparse table \"", plan.tables[table].name,
                                "\", but this model has a single one, with the rows of \"",
                                plan.tables[0].features[0],
                                "\"; give it the same embedding_dim, key and table"));
  }
  return absl::OkStatus();
}

absl::Status Compiler::CheckDense() const {
  // Only for models without dense tables of rows.
  for (int i = 0; i < job_.features_size() && !use_.dense_rows; ++i) {
    if (!IsDense(job_.features(i))) continue;
    return AtField(DensePath(job_, i),
                   FeatureError(job_.features(i),
                                "has dense: true, but this model has no dense tables for rows of "
                                "features; remove it"));
  }
  const std::vector<ConfigProblem> problems = FindDenseProblems(job_);
  if (problems.empty()) return absl::OkStatus();
  const ConfigProblem& first = problems.front();
  return AtField(first.path,
                 absl::InvalidArgumentError(absl::StrCat(first.path, ": ", first.text)));
}

void Compiler::PlaceRows() {
  uint64_t next = 0;
  for (const auto& [wide, deep] :
       {std::pair(false, true), std::pair(true, true), std::pair(true, false)}) {
    for (size_t s = 0; s < out_.slots.size(); ++s) {
      FeatureSchema::Slot& info = out_.slot_info[s];
      // Three runs through the slots: rows of the deep part alone, of both parts, and of the wide
      // part alone. Each part's table then has one stretch of rows.
      if (info.rows.empty() || info.in_wide != wide || info.in_deep != deep) continue;
      info.rows = {next, next + info.rows.size()};
      next = info.rows.end;
      const CompiledSlot& slot = out_.slots[s];
      if (slot.cross != kNone) {
        out_.crosses[slot.cross].rows = info.rows;
      } else {
        out_.categories[slot.category].rows = info.rows;
      }
    }
  }
}

absl::Status Compiler::CompileLabelAndWeight() {
  const DataConfig& data = job_.data();
  std::string label = data.label().column();
  const DataFormat& format = FormatOf(data);
  if (format.label_first) {
    if (!label.empty() && label != "label") {
      return absl::InvalidArgumentError(absl::StrCat(
          "data.label.column is \"", label, "\" but ", DataConfig::Format_Name(data.format()),
          " has its label in the first column, named \"label\"; leave data.label.column empty"));
    }
    label = "label";
  } else if (ProgramGivesData(job_)) {
    // Batches name it so, and tables unless the job says another column.
    if (label.empty()) label = "label";
  } else if (label.empty()) {
    return absl::InvalidArgumentError(
        "data.label.column is empty; name the column that holds the label");
  }
  // Nobody means this, and the model would see the label through the weights.
  if (label == data.weight_column()) {
    return absl::InvalidArgumentError(absl::StrCat("data.weight_column is the label column \"",
                                                   label,
                                                   "\"; name another column or leave it empty"));
  }
  SLUICE_ASSIGN_OR_RETURN(out_.label,
                          LabelRule::Create(data, ProgramGivesData(job_) && !data.has_label()));
  out_.decimal_comma = data.csv().decimal_mark() == ",";
  out_.csv = format.delimited;
  out_.absent_labels = format.absent_labels;
  out_.trim_parts = format.delimited && (!data.csv().has_trim() || data.csv().trim());
  out_.absent.assign(data.csv().missing().begin(), data.csv().missing().end());
  // Label and weight have fixed places at the front (kLabelColumn, kWeightColumn).
  out_.columns = {label, data.weight_column()};
  columns_[label] = 0;
  if (!data.weight_column().empty()) columns_[data.weight_column()] = 1;
  return absl::OkStatus();
}

absl::Status Compiler::IndexName(int index) {
  const Feature& feature = job_.features(index);
  if (feature.name().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("features[", index, "] has no name; give it one"));
  }
  // Two features of one name would have the same keys, and so share their rows without saying so.
  if (!by_name_.emplace(feature.name(), &feature).second) {
    return FeatureError(
        feature,
        "is declared twice; rename one (with `column`, two features may read the same column)");
  }
  if (feature.kind_case() == Feature::KIND_NOT_SET) {
    return FeatureError(feature, "has no kind; add numeric {}, categorical {} or cross {}");
  }
  return absl::OkStatus();
}

absl::Status Compiler::IndexParts(const Feature& cross) {
  if (!cross.has_cross()) return absl::OkStatus();
  if (cross.cross().features_size() < 2) {
    return FeatureError(cross, "a cross needs two or more features but it has ",
                        cross.cross().features_size());
  }
  absl::flat_hash_set<std::string> seen;
  for (const std::string& name : cross.cross().features()) {
    const auto it = by_name_.find(name);
    if (it == by_name_.end()) {
      return FeatureError(cross, "crosses \"", name,
                          "\", but no feature has that name; declare it (in_wide: false and "
                          "in_deep: false keep it for crosses only) or correct the name");
    }
    const Feature& part = *it->second;
    if (!seen.insert(name).second)
      return FeatureError(cross, "has the part \"", name, "\" twice; remove one");
    if (part.has_cross()) {
      return FeatureError(cross, "crosses the cross \"", name,
                          "\"; list the parts of that cross instead");
    }
    if (part.has_numeric() && !Bucketed(part)) {
      return FeatureError(cross, "crosses the number \"", name,
                          "\"; give it boundaries (with keep_numeric to keep "
                          "the number too)");
    }
    if (part.has_categorical() && !part.categorical().multi_value_delimiter().empty()) {
      return FeatureError(cross, "crosses \"", name,
                          "\", which has several values per example; cross "
                          "single-valued features only");
    }
    const DataFormat& format = FormatOf(job_.data());
    const CellValues values =
        part.has_categorical() ? format.values_of(job_.data(), ColumnOf(part)) : CellValues::kOne;
    if (format.slots && values == CellValues::kAny) {
      return FeatureError(cross, "crosses \"", name,
                          "\", whose slot has any number of values; give the slot dim: 1");
    }
    if (values == CellValues::kWeighted) {
      return FeatureError(
          cross, "crosses \"", name, "\", whose column has several values with weights in ",
          DataConfig::Format_Name(job_.data().format()), "; cross single-valued features only");
    }
    // A part of several crosses has one place, and its key is computed once a line.
    parts_.emplace(name, static_cast<int>(parts_.size()));
  }
  return absl::OkStatus();
}

absl::Status Compiler::CheckEmbeddingDim(const Feature& feature) const {
  if (!feature.has_embedding_dim()) return absl::OkStatus();
  // A plain number is an input as it is, without an embedding.
  if (!HasKeys(feature)) {
    return FeatureError(
        feature,
        "has embedding_dim but is a plain number; give it boundaries or remove embedding_dim");
  }
  return absl::OkStatus();
}

absl::StatusOr<int> Compiler::Column(const Feature& feature, const std::string& declared) {
  const std::string& name = declared.empty() ? feature.name() : declared;
  // Features that read the same column share its place.
  const auto [it, added] = columns_.emplace(name, static_cast<int>(out_.columns.size()));
  if (it->second == 0) {
    return FeatureError(feature, "reads the label column \"", name,
                        "\"; the model would only copy the label");
  }
  // In the order of the first use, which decides where a parser puts the cells.
  if (added) out_.columns.push_back(name);
  return it->second;
}

absl::Status Compiler::CompileFeature(const Feature& feature) {
  SLUICE_RETURN_IF_ERROR(CheckEmbeddingDim(feature));
  if (!InWide(feature) && !InDeep(feature) && !parts_.contains(feature.name())) {
    return FeatureError(
        feature, "is not used: in_wide and in_deep are false and no cross has it; remove it");
  }
  // One for each feature of the job, also for those without a slot, since the summary of the data
  // lists them all.
  FeatureSource& source = out_.sources.emplace_back();
  if (feature.has_cross()) return CompileCross(feature);
  if (feature.has_categorical()) {
    SLUICE_ASSIGN_OR_RETURN(source.column, Column(feature, feature.categorical().column()));
    source.category = static_cast<int>(out_.categories.size());
    return CompileCategorical(feature, source.column);
  }
  SLUICE_ASSIGN_OR_RETURN(const int column, Column(feature, feature.numeric().column()));
  source.column = column;
  const NumericFeature& numeric = feature.numeric();
  if (numeric.has_dim() && Bucketed(feature)) {
    return FeatureError(feature,
                        "has dim and boundaries, but a vector has no buckets; remove one of them");
  }
  if (!numeric.has_dim() && !numeric.multi_value_delimiter().empty()) {
    return FeatureError(feature,
                        "has multi_value_delimiter, but its cells are one number; set dim, the "
                        "number of values, or remove multi_value_delimiter");
  }
  if (!Bucketed(feature)) {
    if (numeric.keep_numeric()) {
      return FeatureError(feature, "keep_numeric needs boundaries; remove it or add boundaries");
    }
    return CompileNumeric(feature, column);
  }
  SLUICE_RETURN_IF_ERROR(CompileBuckets(feature, column));
  if (numeric.keep_numeric()) return CompileNumeric(feature, column);
  if (numeric.log() || numeric.normalization_case() != NumericFeature::NORMALIZATION_NOT_SET ||
      numeric.has_default_value()) {
    return FeatureError(
        feature,
        "log, normalization and default_value act on the number, which boundaries replace; "
        "remove them or set keep_numeric: true");
  }
  return absl::OkStatus();
}

absl::Status Compiler::CompileNumeric(const Feature& feature, int column) {
  const NumericFeature& config = feature.numeric();
  CompiledNumeric numeric;
  numeric.feature = feature.name();
  numeric.column = column;
  SLUICE_ASSIGN_OR_RETURN(numeric.date, DateOf(feature, config.date_part(), config.date_format()));
  numeric.log = config.log();
  numeric.default_value = config.default_value();
  if (!std::isfinite(numeric.default_value)) {
    return FeatureError(feature, "default_value is ", config.default_value(),
                        "; use a finite number");
  }
  if (config.has_min_max()) {
    const double min = config.min_max().min(), max = config.min_max().max();
    if (!(std::isfinite(min) && std::isfinite(max) && min < max &&
          std::isfinite(1 / (max - min)))) {
      return FeatureError(feature, "min_max has min ", min, " and max ", max,
                          "; min must be less than max");
    }
    // As a product and not as a quotient: appending an example multiplies only.
    numeric.offset = min;
    numeric.scale = 1 / (max - min);
  } else if (config.has_z_score()) {
    const double mean = config.z_score().mean(), stddev = config.z_score().stddev();
    if (!(std::isfinite(mean) && std::isfinite(stddev) && stddev > 0 &&
          std::isfinite(1 / stddev))) {
      return FeatureError(feature, "z_score has mean ", mean, " and stddev ", stddev,
                          "; both must be finite and stddev must be greater than 0");
    }
    numeric.offset = mean;
    numeric.scale = 1 / stddev;
  }
  if (config.has_dim()) SLUICE_RETURN_IF_ERROR(CompileVector(feature, &numeric));
  return AddNumbers(feature, std::move(numeric));
}

absl::Status Compiler::CompileVector(const Feature& feature, CompiledNumeric* numeric) const {
  const NumericFeature& config = feature.numeric();
  const std::string& delimiter = config.multi_value_delimiter();
  if (config.dim() < 1 || config.dim() > kMaxVector) {
    return FeatureError(feature, "dim is ", config.dim(), "; use 1 to ", kMaxVector);
  }
  numeric->dim = config.dim();
  if (config.date_part() != WHOLE) {
    return FeatureError(feature, "has dim and date_part, but a date is one value; remove one");
  }
  if (ProgramGivesData(job_)) return absl::OkStatus();  // as arrays
  if (delimiter.size() > 1) {
    return FeatureError(feature, "multi_value_delimiter is \"", delimiter, "\"; use one character");
  }
  if (!delimiter.empty()) {
    const char c = delimiter[0];
    if (c == '.' || c == '-' || c == '+' || c == 'e' || c == 'E' || (c >= '0' && c <= '9') ||
        (out_.decimal_comma && c == ',')) {
      return FeatureError(feature, "multi_value_delimiter \"", delimiter,
                          "\" is a character of numbers; change it");
    }
    numeric->delimiter = c;
  }
  const DataFormat& format = FormatOf(job_.data());
  const std::string& column = config.column().empty() ? feature.name() : config.column();
  const CellValues values = format.values_of(job_.data(), column);
  if (values == CellValues::kWeighted) {
    return FeatureError(feature, "has dim, but \"", column, "\" is a column of ",
                        DataConfig::Format_Name(job_.data().format()),
                        " with index:value, whose values have no places; remove dim");
  }
  if (format.slots) {
    for (const Slot& slot : job_.data().slots()) {
      if (slot.name() != column || slot.dim() <= 1) continue;
      return FeatureError(feature, "has dim, and so has its slot, whose columns are ", column,
                          ".0, ", column, ".1, ...; remove the dim of the slot");
    }
    if (!delimiter.empty() && delimiter != " ") {
      return FeatureError(feature, "multi_value_delimiter is \"", delimiter,
                          "\" but blanks separate the values of a slot; remove it");
    }
    numeric->delimiter = ' ';
  }
  return absl::OkStatus();
}

absl::Status Compiler::AddNumbers(const Feature& feature, CompiledNumeric numeric) {
  const Use use = UseOf(feature, use_.numbers);
  if (!use.any()) return Unused(feature, true, use_);
  numeric.first = out_.numeric_info.size();
  if (numeric.first + numeric.size() > kMaxNumbers) {
    return FeatureError(feature, "and the features before it have more than ", kMaxNumbers,
                        " numbers, the most of a job; lower dim");
  }
  for (uint32_t i = 0; i < numeric.size(); ++i) {
    std::string name =
        numeric.dim == 0 ? feature.name() : absl::StrCat(feature.name(), "[", i, "]");
    if (numeric.dim > 0 && by_name_.contains(name)) {
      return FeatureError(feature, "has a number \"", name,
                          "\", and so is another feature called; rename one of them");
    }
    out_.numeric_info.push_back({std::move(name), use.wide, use.deep, numeric.dim});
  }
  out_.numerics.push_back(std::move(numeric));
  return absl::OkStatus();
}

absl::Status Compiler::CompileBuckets(const Feature& feature, int column) {
  const NumericFeature& config = feature.numeric();
  CompiledCategory category;
  category.column = column;
  SLUICE_ASSIGN_OR_RETURN(category.date, DateOf(feature, config.date_part(), config.date_format()));
  category.bucketed = true;
  category.boundaries.assign(config.boundaries().begin(), config.boundaries().end());
  for (size_t i = 0; i < category.boundaries.size(); ++i) {
    if (!std::isfinite(category.boundaries[i])) {
      return FeatureError(feature, "boundaries[", i, "] is ", category.boundaries[i],
                          "; use finite numbers");
    }
    if (i > 0 && !(category.boundaries[i - 1] < category.boundaries[i])) {
      return FeatureError(feature, "boundaries[", i, "] = ", category.boundaries[i],
                          " is not greater than boundaries[", i - 1,
                          "] = ", category.boundaries[i - 1], "; list them in ascending order");
    }
  }
  const uint64_t seed = SeedOf(feature);
  for (size_t i = 0; i <= category.boundaries.size(); ++i) {
    category.bucket_keys.push_back(ValueKey(std::to_string(i), seed));
  }
  return AddCategory(feature, std::move(category), CategoricalFeature::SUM);
}

absl::Status Compiler::CompileCategorical(const Feature& feature, int column) {
  const CategoricalFeature& config = feature.categorical();
  CompiledCategory category;
  category.column = column;
  SLUICE_ASSIGN_OR_RETURN(category.date, DateOf(feature, config.date_part(), config.date_format()));
  category.raw = feature.key() == Feature::RAW;
  category.hash_buckets = config.hash_buckets();
  category.missing_is_value = config.missing_is_value();
  for (const std::string& value : config.vocabulary()) {
    if (value.empty())
      return FeatureError(feature,
                          "vocabulary has an empty value; remove it (see missing_is_value)");
    if (!category.vocabulary.emplace(value, category.vocabulary.size()).second) {
      return FeatureError(feature, "vocabulary has \"", value, "\" twice; remove one");
    }
  }
  if (config.separate_unknown() && (config.vocabulary().empty() || config.hash_buckets() == 0)) {
    return FeatureError(
        feature, "separate_unknown has no effect without vocabulary and hash_buckets; remove it");
  }
  category.mean = config.pooling() == CategoricalFeature::MEAN;
  SLUICE_RETURN_IF_ERROR(CompileDelimiters(feature, &category));
  return AddCategory(feature, std::move(category), config.pooling());
}

absl::Status Compiler::CompileWeights(const Feature& feature, CompiledCategory* category) const {
  const CategoricalFeature& config = feature.categorical();
  const std::string format = DataConfig::Format_Name(job_.data().format());
  if (!config.multi_value_delimiter().empty() || !config.weight_delimiter().empty()) {
    return FeatureError(feature, "has multi_value_delimiter or weight_delimiter, but ", format,
                        " has index:value, several of them and their weights; remove both");
  }
  if (config.date_part() != WHOLE) {
    return FeatureError(feature, "has date_part, but ", format, " has index:value; remove it");
  }
  if (!use_.key_weights) {
    return FeatureError(feature, "is a column of ", format,
                        " whose values have weights, but this model has no weights for values; "
                        "write the data in another format");
  }
  category->weighted = true;
  return absl::OkStatus();
}

absl::Status Compiler::CompileDelimiters(const Feature& feature, CompiledCategory* category) const {
  const CategoricalFeature& config = feature.categorical();
  const std::string& delimiter = config.multi_value_delimiter();
  if (delimiter.size() > 1) {
    return FeatureError(feature, "multi_value_delimiter is \"", delimiter, "\"; use one character");
  }
  if (!delimiter.empty()) {
    if (config.date_part() != WHOLE) {
      return FeatureError(
          feature,
          "has date_part and multi_value_delimiter, but a date is one value; remove one of them");
    }
    category->multi_value_delimiter = delimiter[0];
  }
  const DataFormat& format = FormatOf(job_.data());
  const CellValues values = format.values_of(job_.data(), ColumnOf(feature));
  if (format.slots && values == CellValues::kAny) {
    if (!delimiter.empty() && delimiter != " ") {
      return FeatureError(feature, "multi_value_delimiter is \"", delimiter,
                          "\" but blanks separate the values of a slot; remove it");
    }
    if (config.date_part() == WHOLE) category->multi_value_delimiter = ' ';
  }
  if (values == CellValues::kWeighted) SLUICE_RETURN_IF_ERROR(CompileWeights(feature, category));
  // A program gives any number of values.
  if (category->mean && category->multi_value_delimiter == 0 && values == CellValues::kOne &&
      !ProgramGivesData(job_)) {
    return FeatureError(feature,
                        "pooling MEAN has no effect on a single value; remove it, or set "
                        "multi_value_delimiter");
  }
  const std::string& weight = config.weight_delimiter();
  if (weight.empty()) return absl::OkStatus();
  if (weight.size() > 1 || weight[0] == category->multi_value_delimiter) {
    return FeatureError(feature, "weight_delimiter is \"", weight,
                        "\"; use one character other than multi_value_delimiter");
  }
  if (config.date_part() != WHOLE) {
    return FeatureError(feature, "has date_part and weight_delimiter; remove one of them");
  }
  if (weight[0] == '.' || weight[0] == '-' || weight[0] == '+' ||
      (weight[0] >= '0' && weight[0] <= '9') ||
      (out_.decimal_comma && (weight[0] == ',' || category->multi_value_delimiter == ','))) {
    return FeatureError(feature, "weight_delimiter \"", weight, "\" and multi_value_delimiter \"",
                        delimiter, "\" must not be characters of numbers; change them");
  }
  if (parts_.contains(feature.name())) {
    return FeatureError(feature,
                        "has weight_delimiter and is part of a cross, which has no weights; remove "
                        "weight_delimiter, or declare another feature of the column for the cross");
  }
  if (!use_.key_weights) {
    return FeatureError(
        feature, "has weight_delimiter, but this model has no weights for values; remove it");
  }
  category->weight_delimiter = weight[0];
  category->weighted = true;
  return absl::OkStatus();
}

absl::Status Compiler::AddCategory(const Feature& feature, CompiledCategory category,
                                   CategoricalFeature::Pooling pooling) {
  if (pooling != CategoricalFeature::SUM && pooling != CategoricalFeature::MEAN) {
    return FeatureError(feature, "pooling is unknown; use SUM or MEAN");
  }
  const int index = static_cast<int>(out_.categories.size());
  category.feature = feature.name();
  category.index = static_cast<uint32_t>(index);
  category.seed = SeedOf(feature);
  category.unknown = UnknownHashesOf(feature.categorical(), category.seed);
  const Use use = KeyUseOf(feature);
  const auto part = parts_.find(feature.name());
  if (!use.any() && part == parts_.end()) return Unused(feature, false, use_);
  if (part != parts_.end()) {
    category.part = part->second;
    out_.part_categories[part->second] = index;
  }
  out_.categories.push_back(std::move(category));
  if (!use.any()) return absl::OkStatus();  // only in crosses
  out_.slots.push_back({index, kNone});
  out_.slot_info.push_back({feature.name(), use.wide, use.deep, pooling, RowsOf(feature),
                            out_.categories.back().weighted});
  return absl::OkStatus();
}

absl::Status Compiler::CompileCross(const Feature& feature) {
  const Use use = KeyUseOf(feature);
  if (!use.any()) return Unused(feature, false, use_);
  CompiledCross cross;
  cross.feature = feature.name();
  cross.seed = SeedOf(feature);
  cross.hash_buckets = feature.cross().hash_buckets();
  for (const std::string& part : feature.cross().features()) cross.parts.push_back(parts_.at(part));
  out_.slots.push_back({kNone, static_cast<int>(out_.crosses.size())});
  out_.slot_info.push_back(
      {feature.name(), use.wide, use.deep, CategoricalFeature::SUM, RowsOf(feature)});
  out_.crosses.push_back(std::move(cross));
  return absl::OkStatus();
}

}  // namespace

UnknownHashes UnknownHashesOf(const CategoricalFeature& config, uint64_t seed) {
  UnknownHashes hashes{OutOfVocabularyKey(seed), MissingKey(seed)};
  const uint64_t buckets = config.hash_buckets();
  if (!config.separate_unknown() || buckets == 0 || config.vocabulary().empty()) return hashes;
  absl::flat_hash_set<uint64_t> taken;
  for (const std::string& word : config.vocabulary()) taken.insert(ValueKey(word, seed) % buckets);
  const auto separate = [&](uint64_t* hash) {
    if (taken.size() == buckets) return;
    uint64_t bucket = *hash % buckets;
    if (!taken.contains(bucket)) {
      taken.insert(bucket);
      return;
    }
    while (taken.contains(bucket)) bucket = (bucket + 1) % buckets;
    taken.insert(bucket);
    *hash = bucket;
  };
  separate(&hashes.out_of_vocabulary);
  if (config.missing_is_value()) separate(&hashes.missing);
  return hashes;
}

void SeparateUnknownValues(JobConfig* job) {
  for (Feature& feature : *job->mutable_features()) {
    if (!feature.has_categorical() || feature.categorical().has_separate_unknown()) continue;
    const uint64_t seed = SeedOf(feature);
    CategoricalFeature separate = feature.categorical();
    separate.set_separate_unknown(true);
    const UnknownHashes with = UnknownHashesOf(separate, seed),
                        without = UnknownHashesOf(feature.categorical(), seed);
    // Where nothing collides the configuration, and with it the cache of parsed data, stays as it
    // was.
    if (with.out_of_vocabulary != without.out_of_vocabulary || with.missing != without.missing)
      *feature.mutable_categorical() = std::move(separate);
  }
}

absl::StatusOr<CompiledFeatures> CompileFeatures(const JobConfig& job, const FeatureUse& use) {
  return Compiler(job, use).Run();
}

}  // namespace sluice
