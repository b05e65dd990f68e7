#include "model/profile/job_proposal.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/printable.h"
#include "common/config/data_format.h"
#include "model/features/date_format.h"

namespace sluice {
namespace {

constexpr double kLeaks = 0.98;             // AUC of one column
constexpr uint64_t kRowsPerDay = 200;       // from which on days of the year are categories
constexpr uint64_t kCategoriesPerRow = 20;  // an integer that occurs so often is a category, too

double ShareOfMissing(const ColumnProfile& column) {
  return column.cells() == 0
             ? 0
             : static_cast<double>(column.missing()) / static_cast<double>(column.cells());
}

bool IsNumeric(ColumnKind kind) {
  return kind == ColumnKind::kInteger || kind == ColumnKind::kNumber;
}

// Whether the name says that numbers are names of things: "user_id", "movieId", "zip", and
// "user.id", a field of an object.
bool NameSaysId(const std::string& path) {
  const std::string name = path.substr(path.rfind('.') + 1);
  const std::string lower = absl::AsciiStrToLower(name);
  for (const char* word : {"id", "uid", "user", "item", "movie", "zip", "zipcode", "code", "sku"}) {
    if (lower == word) return true;
  }
  return absl::EndsWith(lower, "_id") || absl::EndsWith(name, "Id") || absl::EndsWith(name, "ID") ||
         absl::EndsWith(lower, "_code") || absl::EndsWith(lower, "_zip");
}

// Whether nearly every row has another value, so that the column names rows and says nothing of
// others. Numbers that are distinct in each row are usual, unless they count the rows or their name
// says what they are.
bool NamesRows(const ColumnProfile& column) {
  const uint64_t there = column.cells() - column.missing();
  if (there < 20) return false;
  const double distinct =
      static_cast<double>(column.distinct().Count()) / static_cast<double>(there);
  switch (column.kind()) {
    case ColumnKind::kText:
      return distinct > 0.9;
    case ColumnKind::kInteger: {
      if (distinct < 0.95) return false;
      const std::vector<double> ends = column.numbers().Quantiles({0, 1});
      const bool counts_rows = ends[1] - ends[0] < 1.1 * static_cast<double>(there);
      return counts_rows || NameSaysId(column.name());
    }
    case ColumnKind::kNumber:
      // Integers beyond 2^53 and the like, as Avazu's ids.
      return distinct > 0.95 && NameSaysId(column.name());
    default:
      return false;
  }
}

std::string Percent(double share) {
  return share == 0      ? "0 %"
         : share < 0.001 ? "below 0.1 %"
                         : absl::StrFormat("%.1f %%", 100 * share);
}

std::string Count(const DistinctSketch& distinct) {
  return absl::StrCat(distinct.exact() ? "" : "about ", distinct.Count());
}

// Rounded so that a person can read it, and the model does not care: with at least three digits of
// `spread`, the standard deviation of what it is compared with, which may be far below the value.
double Rounded(double value, double spread) {
  constexpr double kAll = 17;
  double digits = 4;
  if (std::abs(value) > spread)
    digits = spread > 0 ? 4 + std::floor(std::log10(std::abs(value) / spread)) : kAll;
  const int precision = static_cast<int>(std::min(digits, kAll));
  return std::strtod(absl::StrFormat("%.*g", precision, value).c_str(), nullptr);
}

class Proposer {
 public:
  Proposer(const TableProfile& table, const LabelChoice& label) : table_(table), label_(label) {}

  JobProposal Propose(const std::string& name) {
    proposal_.job.set_version(1);
    proposal_.job.set_name(name);
    proposal_.assumptions = table_.shape.notes;
    proposal_.left_out = table_.no_features;
    ProposeData();
    if (table_.shape.data.format() == DataConfig::CRITEO_TSV) {
      ProposeCriteo();
      return std::move(proposal_);
    }
    for (const auto* const columns : {&table_.columns, &table_.folder_columns}) {
      for (const ColumnProfile& column : *columns) names_.insert(column.name());
    }
    for (size_t c = 0; c < table_.columns.size(); ++c) {
      if (c != label_.column && CanBeFeature(table_.columns[c])) ProposeColumn(table_.columns[c]);
    }
    for (const ColumnProfile& column : table_.folder_columns) {
      if (CanBeFeature(column)) ProposeColumn(column);
    }
    ProposeCrosses();
    ProposeModel();
    return std::move(proposal_);
  }

 private:
  void ProposeData() {
    DataConfig* const data = proposal_.job.mutable_data();
    *data = table_.shape.data;
    std::vector<std::string> spellings;
    for (size_t c = 0; c < table_.columns.size(); ++c) {
      if (c == label_.column) continue;
      for (const auto& spelling : table_.columns[c].missing_spellings()) {
        if (std::find(spellings.begin(), spellings.end(), spelling.text) == spellings.end())
          spellings.push_back(spelling.text);
      }
    }
    if (!FormatOf(*data).slots) {
      for (const std::string& text : spellings) data->mutable_csv()->add_missing(text);
    }
    if (!spellings.empty()) {
      proposal_.assumptions.push_back(
          absl::StrCat("values that mean \"missing\": ", absl::StrJoin(spellings, ", ")));
    }
    LabelConfig* const label = data->mutable_label();
    if (!FormatOf(*data).label_first) label->set_column(table_.columns[label_.column].name());
    label->mutable_positive()->Assign(label_.positive.begin(), label_.positive.end());
    label->mutable_negative()->Assign(label_.negative.begin(), label_.negative.end());
    if (label_.has_threshold) label->set_positive_at_least(label_.threshold);
    // What was not looked at may have such lines, too.
    uint64_t odd = table_.bad.count + table_.columns[label_.column].missing();
    for (const ColumnProfile& column : table_.columns) odd += column.odd_cells();
    uint64_t allowed = odd;
    if (!table_.whole)
      allowed = std::max<uint64_t>(
          100, (odd + 1) * (table_.all_lines / std::max<uint64_t>(table_.lines, 1) + 1) * 2);
    data->set_max_bad_lines(allowed);
    if (allowed > 0) {
      proposal_.assumptions.push_back(
          absl::StrCat("up to ", allowed, " malformed ", FormatOf(*data).rows ? "rows" : "lines",
                       " are left out (data.max_bad_lines): ", odd, odd == 1 ? " was" : " were",
                       " seen", table_.whole ? "" : " in a part of the data"));
    }
  }

  // A name for another feature of a column that no column and no feature has.
  std::string NewName(const std::string& wanted) {
    std::string name = wanted;
    while (!names_.insert(name).second) name += '_';
    return name;
  }

  void Add(Feature feature, std::string note) {
    *proposal_.job.add_features() = std::move(feature);
    proposal_.feature_notes.push_back(std::move(note));
  }

  void LeaveOut(const ColumnProfile& column, const std::string& why) {
    proposal_.left_out.emplace_back(column.name(), why);
  }

  bool CanBeFeature(const ColumnProfile& column) const {
    const auto& none = table_.no_features;
    return std::none_of(none.begin(), none.end(),
                        [&](const auto& entry) { return entry.first == column.name(); });
  }

  // Columns that a job cannot name, or that would not help.
  bool MustLeaveOut(const ColumnProfile& column) {
    const std::string& name = column.name();
    const auto& twice = table_.duplicate_names;
    if (name.empty()) {
      LeaveOut(column, "it has no name");
    } else if (std::find(twice.begin(), twice.end(), name) != twice.end()) {
      LeaveOut(column, "several columns have this name");
    } else if (Printable(name) != name || name.find_first_of("*{}") != std::string::npos) {
      LeaveOut(column, "a job cannot have this name: it has *, { or }, or is not UTF-8");
    } else if (column.kind() == ColumnKind::kEmpty) {
      LeaveOut(column, "all of its values are missing");
    } else if (column.distinct().Count() == 1 && column.missing() == 0) {
      LeaveOut(column, "it has one value only");
    } else if (NamesRows(column)) {
      LeaveOut(column, "nearly each row has another value");
    } else if (column.decimal_comma() != (table_.shape.data.csv().decimal_mark() == ",") &&
               column.kind() == ColumnKind::kNumber) {
      LeaveOut(column, "its numbers have another decimal mark than those of other columns");
    } else {
      return false;
    }
    return true;
  }

  void ProposeColumn(const ColumnProfile& column) {
    if (MustLeaveOut(column)) return;
    if (HasSeveral(column.name())) {
      if (IsSlotOfKeys(column.name())) return ProposeCategory(column);
      if (column.vector_size() > 0) return ProposeVector(column);
      return LeaveOut(column, "it is a slot of several numbers that are no keys");
    }
    switch (column.kind()) {
      case ColumnKind::kDate:
        return ProposeDate(column);
      case ColumnKind::kText:
        return ProposeCategory(column);
      case ColumnKind::kSeveralValues:
        return ProposeSeveral(column);
      default:
        break;
    }
    const uint64_t distinct = column.distinct().Count();
    const uint64_t there = column.cells() - column.missing();
    const bool sparse = FormatOf(table_.shape.data).numbered;
    if (column.kind() == ColumnKind::kInteger && !sparse) {
      if (NameSaysId(column.name()) || column.has_leading_zeros() || IsSlotOfKeys(column.name()))
        return ProposeCategory(column);
      if (distinct * kCategoriesPerRow <= there) {
        ProposeCategory(column);
        if (distinct > 2) ProposeNumber(column, NewName(column.name() + "_number"), false);
        return;
      }
    }
    ProposeNumber(column, column.name(), !sparse);
  }

  const Slot* SlotOf(const std::string& name) const {
    for (const Slot& slot : table_.shape.data.slots()) {
      if (slot.name() == name) return &slot;
    }
    return nullptr;
  }
  bool HasSeveral(const std::string& name) const {
    const Slot* slot = SlotOf(name);
    return slot != nullptr && slot->dim() != 1;
  }
  bool IsSlotOfKeys(const std::string& name) const {
    const Slot* slot = SlotOf(name);
    return slot != nullptr && slot->type() == Slot::UINT64;
  }

  // Marks a value that is missing often enough to learn from.
  static void SetMissing(const ColumnProfile& column, CategoricalFeature* category) {
    if (column.missing() > 0) category->set_missing_is_value(true);
  }

  std::string MissingNote(const ColumnProfile& column) const {
    return column.missing() == 0 ? ""
                                 : absl::StrCat(", ", Percent(ShareOfMissing(column)), " missing");
  }

  void ProposeCategory(const ColumnProfile& column) {
    Feature feature;
    feature.set_name(column.name());
    CategoricalFeature* const category = feature.mutable_categorical();
    SetMissing(column, category);
    const bool several = !column.parts_delimiter().empty();
    std::string text = absl::StrCat(Count(several ? column.parts() : column.distinct()), " values",
                                    MissingNote(column));
    // With everything seen, the values are known: others will be typing errors or new.
    const uint64_t distinct = column.distinct().Count();
    if (table_.whole && column.kind() == ColumnKind::kText && distinct >= 2 && distinct <= 8) {
      bool usual = true;
      const auto values = column.values().Sorted();
      for (const auto& [value, count] : values)
        usual = usual && count >= 10 && value.size() <= 40 && Printable(value) == value;
      for (const auto& [value, count] : values) {
        if (usual) category->add_vocabulary(value);
      }
    }
    // An integer that is a number too has a smooth effect.
    if (!several && (column.kind() == ColumnKind::kText || NameSaysId(column.name())))
      singles_.push_back({feature.name(), distinct});
    Add(std::move(feature), std::move(text));
  }

  void ProposeVector(const ColumnProfile& column) {
    Feature feature;
    feature.set_name(column.name());
    NumericFeature* const numeric = feature.mutable_numeric();
    numeric->set_dim(static_cast<uint32_t>(column.vector_size()));
    if (!column.parts_delimiter().empty() && !FormatOf(table_.shape.data).slots)
      numeric->set_multi_value_delimiter(column.parts_delimiter());
    const ColumnProfile::Moments& moments = column.part_moments();
    if (moments.stddev() > 0) {
      numeric->mutable_z_score()->set_mean(Rounded(moments.mean, moments.stddev()));
      numeric->mutable_z_score()->set_stddev(Rounded(moments.stddev(), moments.stddev()));
      // As the mean of all, so that a missing vector says nothing.
      if (column.missing() > 0) numeric->set_default_value(numeric->z_score().mean());
    }
    Add(std::move(feature),
        absl::StrFormat("vectors of %d numbers, mean %.4g, deviation %.4g%s", column.vector_size(),
                        moments.mean, moments.stddev(), MissingNote(column)));
  }

  void ProposeSeveral(const ColumnProfile& column) {
    if (column.vector_size() > 0) return ProposeVector(column);
    Feature feature;
    feature.set_name(column.name());
    CategoricalFeature* const category = feature.mutable_categorical();
    if (!column.parts_delimiter().empty())
      category->set_multi_value_delimiter(column.parts_delimiter());
    if (column.parts_have_weights()) category->set_weight_delimiter(":");
    // The sum of many embeddings would depend on their number more than on the values.
    constexpr double kMany = 5;
    if (column.parts_per_cell() > kMany) category->set_pooling(CategoricalFeature::MEAN);
    SetMissing(column, category);
    Add(std::move(feature),
        absl::StrFormat("%s values, %.1f in a cell%s%s", Count(column.parts()),
                        column.parts_per_cell(), column.parts_have_weights() ? " with weights" : "",
                        MissingNote(column)));
  }

  void ProposeNumber(const ColumnProfile& column, const std::string& name, bool buckets) {
    Feature feature;
    feature.set_name(name);
    NumericFeature* const numeric = feature.mutable_numeric();
    if (name != column.name()) numeric->set_column(column.name());
    const std::vector<double> q = column.numbers().Quantiles({0, 0.5, 0.9, 0.99, 1});
    // Amounts and counts span orders of magnitude.
    const bool log = q[0] >= 0 && q[4] > 20 && q[4] > 10 * std::max(q[1], 1.0);
    const ColumnProfile::Moments& moments = log ? column.log_moments() : column.moments();
    if (log) numeric->set_log(true);
    if (moments.stddev() > 0) {
      numeric->mutable_z_score()->set_mean(Rounded(moments.mean, moments.stddev()));
      numeric->mutable_z_score()->set_stddev(Rounded(moments.stddev(), moments.stddev()));
    }
    if (column.missing() > 0 && !FormatOf(table_.shape.data).numbered)
      numeric->set_default_value(Rounded(q[1], column.moments().stddev()));
    if (buckets) {
      for (const double boundary : Boundaries(column)) numeric->add_boundaries(boundary);
      if (numeric->boundaries_size() > 0) numeric->set_keep_numeric(true);
    }
    Add(std::move(feature), absl::StrFormat("%.6g .. %.6g, median %.6g%s%s", q[0], q[4], q[1],
                                            log ? ", skewed" : "", MissingNote(column)));
  }

  // Values that cut the column into buckets of about the same size; where one value is frequent,
  // the others.
  static std::vector<double> Boundaries(const ColumnProfile& column) {
    constexpr int kBuckets = 16;
    const QuantileSketch& numbers = column.numbers();
    std::vector<double> shares;
    for (int i = 1; i < kBuckets; ++i) shares.push_back(static_cast<double>(i) / kBuckets);
    std::vector<double> found = numbers.Quantiles(shares);
    // Half of the values are the smallest one, as with amounts that are mostly 0.
    const double least = numbers.Quantiles({0})[0];
    const auto above = std::upper_bound(found.begin(), found.end(), least) - found.begin();
    if (above > kBuckets / 2) {
      const double from = static_cast<double>(above) / kBuckets;
      shares.clear();
      for (int i = 0; i < kBuckets; ++i) shares.push_back(from + (1 - from) * i / kBuckets);
      found = numbers.Quantiles(shares);
    }
    std::vector<double> boundaries;
    for (const double value : found) {
      const double boundary =
          column.kind() == ColumnKind::kInteger ? value : Rounded(value, column.moments().stddev());
      if (boundary > least && (boundaries.empty() || boundary > boundaries.back()))
        boundaries.push_back(boundary);
    }
    return boundaries;
  }

  void ProposeDate(const ColumnProfile& column) {
    const std::string form =
        column.date_format().empty() ? "" : absl::StrCat(" of the form ", column.date_format());
    const auto add = [&](const char* suffix, DatePart part, const char* note) {
      Feature feature;
      std::string name = NewName(absl::StrCat(column.name(), "_", suffix));
      feature.set_name(name);
      CategoricalFeature* const category = feature.mutable_categorical();
      category->set_column(column.name());
      category->set_date_part(part);
      if (!column.date_format().empty()) category->set_date_format(column.date_format());
      SetMissing(column, category);
      Add(std::move(feature), note + form + MissingNote(column));
      return name;
    };
    if (column.days() > 1) {
      const std::string week = add("day_of_week", DAY_OF_WEEK, "1 (Monday) to 7, of a date");
      if (column.days() > 60) add("month", MONTH, "1 to 12, of a date");
      // With few examples of each, days would be learned by heart.
      if (column.days() > 60 && column.days() * kRowsPerDay <= table_.all_lines) {
        singles_.push_back({add("day_of_year", DAY_OF_YEAR, "1 to 366, of a date"), column.days()});
      } else {
        singles_.push_back({week, 7});
      }
    }
    if (column.date_has_time()) {
      singles_.push_back({add("hour", HOUR, "0 to 23, of a date"), 24});
    }
    if (column.date_has_time() && DateFormat::Create(column.date_format(), MINUTE_OF_DAY).ok()) {
      Feature feature;
      feature.set_name(NewName(absl::StrCat(column.name(), "_minute_of_day")));
      NumericFeature* const numeric = feature.mutable_numeric();
      numeric->set_column(column.name());
      numeric->set_date_part(MINUTE_OF_DAY);
      if (!column.date_format().empty()) numeric->set_date_format(column.date_format());
      numeric->mutable_min_max()->set_min(0);
      numeric->mutable_min_max()->set_max(1440);
      if (column.missing() > 0) numeric->set_default_value(720);
      Add(std::move(feature), "minutes from midnight" + form);
    }
    if (column.days() <= 1 && !column.date_has_time()) LeaveOut(column, "it is one day only");
  }

  // Pairs of categories and of parts of dates, where there are enough examples for each pair.
  void ProposeCrosses() {
    constexpr uint64_t kFewestLines = 200000;
    constexpr double kExamples = 10;  // of each pair of values, in the mean
    constexpr size_t kMostCrosses = 12;
    if (table_.all_lines < kFewestLines) return;
    const double most = static_cast<double>(table_.all_lines) / kExamples;
    size_t crosses = 0;
    for (size_t a = 0; a < singles_.size(); ++a) {
      for (size_t b = a + 1; b < singles_.size() && crosses < kMostCrosses; ++b) {
        const Single &one = singles_[a], &other = singles_[b];
        if (one.distinct < 3 || other.distinct < 3) continue;
        if (static_cast<double>(one.distinct) * static_cast<double>(other.distinct) > most)
          continue;
        Feature feature;
        feature.set_name(NewName(absl::StrCat(one.name, "_x_", other.name)));
        feature.mutable_cross()->add_features(one.name);
        feature.mutable_cross()->add_features(other.name);
        Add(std::move(feature), absl::StrCat(one.name, " and ", other.name, " together"));
        ++crosses;
      }
    }
  }

  void ProposeCriteo() {
    Feature counts, categories;
    counts.set_name("I{1..13}");
    counts.mutable_numeric()->set_log(true);
    Add(std::move(counts), "counts: log(1 + count); a missing count is 0");
    categories.set_name("C{1..26}");
    categories.mutable_categorical()->set_missing_is_value(true);
    Add(std::move(categories), "any value is hashed to a key of its own");
    JobConfig* const job = &proposal_.job;
    WideDeepConfig* const model = job->mutable_model()->mutable_wide_deep();
    model->set_wide_categorical(false);
    for (int i = 0; i < 3; ++i) model->add_hidden_units(400);
    model->set_embedding_dim(10);
    job->mutable_optimizers()->mutable_all()->mutable_adam();
    job->mutable_optimizers()->mutable_all()->set_learning_rate(0.0005f);
    OptimizerConfig* const embedding = job->mutable_optimizers()->mutable_embedding();
    embedding->mutable_adagrad()->set_initial_accumulator(1e-4f);
    embedding->set_learning_rate(0.05f);
    proposal_.assumptions.push_back(
        "model and optimizers are those of configs/criteo_wide_deep.textproto");
    ProposeTraining();
  }

  void ProposeModel() {
    JobConfig* const job = &proposal_.job;
    WideDeepConfig* const model = job->mutable_model()->mutable_wide_deep();
    model->add_hidden_units(100);
    model->add_hidden_units(50);
    uint64_t most = 0;
    bool categories = false;
    for (const Feature& feature : job->features()) {
      categories = categories || !feature.has_numeric() || feature.numeric().boundaries_size() > 0;
    }
    for (const ColumnProfile& column : table_.columns)
      most = std::max({most, column.kind() == ColumnKind::kText ? column.distinct().Count() : 0,
                       column.parts().Count()});
    if (categories) model->set_embedding_dim(most > 100000 ? 16 : 8);
    OptimizersConfig* const optimizers = job->mutable_optimizers();
    optimizers->mutable_all()->mutable_adam();
    optimizers->mutable_all()->set_learning_rate(0.001f);
    if (categories) {
      // A rare category must learn much from each of its examples.
      optimizers->mutable_embedding()->mutable_adagrad()->set_initial_accumulator(1e-4f);
      optimizers->mutable_embedding()->set_learning_rate(0.05f);
      optimizers->mutable_wide()->mutable_adagrad();
      optimizers->mutable_wide()->set_learning_rate(0.05f);
    }
    ProposeTraining();
  }

  void ProposeTraining() {
    JobConfig* const job = &proposal_.job;
    const uint64_t lines = table_.all_lines;
    TrainConfig* const train = job->mutable_train();
    const bool criteo = table_.shape.data.format() == DataConfig::CRITEO_TSV;
    train->set_batch_size(lines < 10000     ? 32
                          : lines < 100000  ? 128
                          : lines < 1000000 ? 256
                          : criteo          ? 2048
                                            : 512);
    // Small data needs several passes; a second pass over much data overfits.
    train->set_epochs(lines < 20000 ? 20 : lines < 100000 ? 10 : lines < 300000 ? 4 : 1);
    train->set_seed(1);
    if (train->epochs() == 1) return;
    train->mutable_early_stop()->set_metric(EarlyStop::AUC);
    train->mutable_early_stop()->set_patience(2);
    job->mutable_checkpoint()->set_save(CheckpointConfig::BEST);
  }

  const TableProfile& table_;
  const LabelChoice& label_;
  JobProposal proposal_;
  std::set<std::string> names_;  // of columns and features
  struct Single {
    std::string name;
    uint64_t distinct = 0;
  };
  std::vector<Single> singles_;  // categories of one value, for crosses
};

// One line of text format.
std::string MessageLine(const google::protobuf::Message& message) {
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  printer.SetUseUtf8StringEscaping(true);
  printer.SetUseShortRepeatedPrimitives(true);
  std::string text;
  printer.PrintToString(message, &text);
  return std::string(absl::StripAsciiWhitespace(text));
}

std::string MessageLines(const google::protobuf::Message& message, const std::string& indent) {
  google::protobuf::TextFormat::Printer printer;
  printer.SetUseUtf8StringEscaping(true);
  printer.SetUseShortRepeatedPrimitives(true);
  std::string text, lines;
  printer.PrintToString(message, &text);
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = text.find('\n', at);
    absl::StrAppend(&lines, indent, text.substr(at, end - at), "\n");
    at = end + 1;
  }
  return lines;
}

}  // namespace

std::vector<std::string> SuspiciousColumns(const TableProfile& table, const LabelChoice& label) {
  std::vector<std::string> found;
  std::vector<int> labels;
  for (size_t r = 0; r < table.rows.size(); ++r)
    labels.push_back(label.LabelOf(table.rows.Cell(r, label.column)));
  for (const std::string& name : table.duplicate_names)
    found.push_back(absl::StrCat("several columns are called \"", name, "\"; rename all but one"));
  for (size_t c = 0; c < table.columns.size(); ++c) {
    const ColumnProfile& column = table.columns[c];
    if (c == label.column || column.kind() == ColumnKind::kEmpty || NamesRows(column)) continue;
    const double auc = table.rows.AucOf(c, IsNumeric(column.kind()), labels);
    if (auc < kLeaks) continue;
    found.push_back(absl::StrFormat(
        "\"%s\" alone tells the label (AUC %.3f): if it is known only after the label, remove its "
        "feature",
        column.name(), auc));
  }
  return found;
}

JobProposal ProposeJob(const TableProfile& table, const LabelChoice& label,
                       const std::string& name) {
  return Proposer(table, label).Propose(name);
}

std::string JobText(const JobProposal& proposal, const std::vector<std::string>& header) {
  const JobConfig& job = proposal.job;
  std::string text;
  for (const std::string& line : header)
    absl::StrAppend(&text, line.empty() ? "#" : "# ", PrintableLine(line), "\n");
  absl::StrAppend(
      &text,
      "#\n# Every field is explained in proto/config.proto. Any of them can be set from "
      "the command line, e.g.\n# --epochs=3 --set model.wide_deep.hidden_units=64,32\n");
  if (!proposal.assumptions.empty()) {
    absl::StrAppend(&text, "#\n# Assumed, from what was looked at:\n");
    for (const std::string& assumption : proposal.assumptions)
      absl::StrAppend(&text, "# - ", PrintableLine(assumption), "\n");
  }
  absl::StrAppend(&text, "\nversion: 1\nname: \"", job.name(), "\"\n");
  if (job.has_worker_num()) absl::StrAppend(&text, "worker_num: ", job.worker_num(), "\n");
  absl::StrAppend(&text, "\n# ---- Data: its files and how they are read.\ndata {\n",
                  MessageLines(job.data(), "  "), "}\n");
  absl::StrAppend(&text,
                  "\n# ---- Features: columns that the wide and the deep part of the model "
                  "use.\n");
  for (int f = 0; f < job.features_size(); ++f) {
    absl::StrAppend(&text, "# ", PrintableLine(proposal.feature_notes[f]), "\nfeatures { ",
                    MessageLine(job.features(f)), " }\n");
  }
  if (!proposal.left_out.empty()) {
    absl::StrAppend(&text, "# Columns without a feature:\n");
    for (const auto& [column, why] : proposal.left_out)
      absl::StrAppend(&text, "# - \"", PrintableLine(column), "\": ", why, "\n");
  }
  absl::StrAppend(&text, "\n# ---- Model: logit = wide + deep.\nmodel {\n",
                  MessageLines(job.model(), "  "), "}\n\noptimizers {\n",
                  MessageLines(job.optimizers(), "  "), "}\n\ntrain {\n",
                  MessageLines(job.train(), "  "), "}\n");
  if (job.has_checkpoint())
    absl::StrAppend(&text, "\ncheckpoint {\n", MessageLines(job.checkpoint(), "  "), "}\n");
  return text;
}

}  // namespace sluice
