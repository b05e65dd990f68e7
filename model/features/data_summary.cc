#include "model/features/data_summary.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "model/features/cell.h"

namespace sluice {
namespace {

constexpr size_t kNamedValues = 3;    // named in a warning
constexpr size_t kMostWarnings = 20;  // in all, besides the one that counts the rest

void Unite(const std::string& from, std::string* to) {
  // A piece knows only the values up to the largest that it has seen, so the strings may differ in
  // length.
  if (to->size() < from.size()) to->resize(from.size(), '\0');
  for (size_t i = 0; i < from.size(); ++i) (*to)[i] = static_cast<char>((*to)[i] | from[i]);
}

size_t BytesOf(size_t values) { return (values + 7) / 8; }

absl::Status TooLarge(const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat("the summary of the data has more ", what,
                   " than the job has; the sender is corrupt or has another version"));
}

// Lists the values that never occur, such as "a", "b", "c" and 4 more.
template <typename Values>
std::string Unseen(const Values& values, const std::string& seen, size_t* count) {
  std::vector<std::string> named;
  *count = 0;
  for (int i = 0; i < values.size(); ++i) {
    if (HasOccurred(seen, i)) continue;
    if ((*count)++ < kNamedValues) named.push_back(QuotedCell(values[i]));
  }
  std::string text = absl::StrJoin(named, ", ");
  if (*count > named.size()) absl::StrAppend(&text, " and ", *count - named.size(), " more");
  return text;
}

// Empty when nothing is suspicious.
std::string WarningOf(const Feature& feature, const FeatureSummary& summary, uint64_t examples) {
  if (!feature.has_cross() && summary.missing() == examples)
    return absl::StrCat("feature ", QuotedCell(feature.name()),
                        " has no value in any training example; is its column right?");
  if (feature.categorical().vocabulary().empty()) return "";
  const auto& vocabulary = feature.categorical().vocabulary();
  size_t count = 0;
  const std::string unseen = Unseen(vocabulary, summary.vocabulary_seen(), &count);
  if (count == 0) return "";
  return absl::StrCat("feature ", QuotedCell(feature.name()), ": ", count, " of ",
                      vocabulary.size(), " vocabulary values never occur",
                      " in the training data: ", unseen, "; check how the data spells them");
}

void SetBit(uint64_t bit, std::string* bits) {
  if (bits->size() <= bit / 8) bits->resize(bit / 8 + 1, '\0');
  (*bits)[bit / 8] = static_cast<char>((*bits)[bit / 8] | 1 << bit % 8);
}

}  // namespace

void DataCounts::CountValue(uint32_t category, uint32_t value, uint64_t place) {
  if (vocabularies_.size() <= category) vocabularies_.resize(category + 1);
  Vocabulary& vocabulary = vocabularies_[category];
  const uint64_t number = examples_ + 1 + place;
  if (value != kOutOfVocabulary) {
    SetBit(value, &vocabulary.seen);
    // An example counts once, however many of its values are outside.
  } else if (std::exchange(vocabulary.last_out, number) != number) {
    ++vocabulary.out_of_vocabulary;
  }
}

void DataCounts::CountLabelValue(uint32_t value) { SetBit(value, &label_values_seen_); }

void DataCounts::CountMissing(size_t column, size_t columns, uint64_t n) {
  // The columns are not known before the first example.
  if (missing_.size() < columns) missing_.resize(columns);
  missing_[column] += n;
}

void DataCounts::CountExamples(uint64_t n, uint64_t positive) {
  examples_ += n;
  positive_ += positive;
}

void DataCounts::CountExample(const bool* missing, size_t columns, bool positive) {
  // Most lines have no value of a vocabulary.
  for (const auto& [category, value] : line_) CountValue(category, value, 0);
  ++examples_;
  positive_ += positive;
  // The columns are not known before the first example.
  if (missing_.size() < columns) missing_.resize(columns);
  uint64_t* const counts = missing_.data();
  for (size_t i = 0; i < columns; ++i) counts[i] += missing[i];
  if (label_value_ >= 0) SetBit(static_cast<uint64_t>(label_value_), &label_values_seen_);
  DropLine();
}

void AddSummary(const DataSummary& from, DataSummary* to) {
  to->set_examples(to->examples() + from.examples());
  to->set_positive(to->positive() + from.positive());
  to->set_repeated_headers(to->repeated_headers() + from.repeated_headers());
  Unite(from.label_values_seen(), to->mutable_label_values_seen());
  while (to->features_size() < from.features_size()) to->add_features();
  for (int i = 0; i < from.features_size(); ++i) {
    const FeatureSummary& one = from.features(i);
    FeatureSummary* sum = to->mutable_features(i);
    sum->set_missing(sum->missing() + one.missing());
    sum->set_out_of_vocabulary(sum->out_of_vocabulary() + one.out_of_vocabulary());
    if (!one.vocabulary_seen().empty())
      Unite(one.vocabulary_seen(), sum->mutable_vocabulary_seen());
  }
}

absl::Status CheckSummary(const JobConfig& job, const DataSummary& summary) {
  // Bounds what a peer can make this process keep.
  if (summary.features_size() > job.features_size()) return TooLarge("features");
  for (int i = 0; i < summary.features_size(); ++i) {
    const size_t values = job.features(i).categorical().vocabulary_size();
    if (summary.features(i).vocabulary_seen().size() > BytesOf(values))
      return TooLarge(
          absl::StrCat("vocabulary values of feature ", QuotedCell(job.features(i).name())));
  }
  const LabelConfig& label = job.data().label();
  const size_t values = label.positive_size() + label.negative_size();
  if (summary.label_values_seen().size() > BytesOf(values)) return TooLarge("label values");
  return absl::OkStatus();
}

bool HasOccurred(const std::string& seen, size_t value) {
  return value / 8 < seen.size() && (static_cast<unsigned char>(seen[value / 8]) >> value % 8 & 1);
}

std::string RemedyOfZeroWeights(const DataConfig& data) {
  // LIBSVM has weights without a column.
  if (data.weight_column().empty())
    return "correct the weights behind the labels (label:weight), or leave them out";
  return absl::StrCat("correct the column ", QuotedCell(data.weight_column()),
                      " of data.weight_column, or remove the field");
}

std::vector<std::string> WarningsOfTraining(const JobConfig& job, const DataSummary& training) {
  std::vector<std::string> warnings;
  // An empty summary says nothing.
  if (training.examples() == 0) return warnings;
  if (training.positive() == 0) warnings.push_back("no training example has label 1");
  if (training.positive() == training.examples())
    warnings.push_back("no training example has label 0");
  if (training.repeated_headers() > 0) {
    warnings.push_back(
        absl::StrCat("header lines in the middle of files, as where files are joined by cat, were "
                     "skipped: ",
                     training.repeated_headers()));
  }
  size_t more = 0;
  for (int i = 0; i < std::min(job.features_size(), training.features_size()); ++i) {
    std::string warning = WarningOf(job.features(i), training.features(i), training.examples());
    if (warning.empty()) continue;
    if (warnings.size() < kMostWarnings) {
      warnings.push_back(std::move(warning));
    } else {
      ++more;
    }
  }
  if (more > 0) {
    warnings.push_back(absl::StrCat(more,
                                    " more features have no values, or have vocabulary values "
                                    "that never occur; see data in result.json"));
  }
  return warnings;
}

std::vector<std::string> WarningsOfLabel(const JobConfig& job, const DataSummary& training,
                                         const DataSummary& evaluation) {
  const LabelConfig& label = job.data().label();
  std::vector<std::string> values(label.positive().begin(), label.positive().end());
  values.insert(values.end(), label.negative().begin(), label.negative().end());
  std::string seen = training.label_values_seen();
  Unite(evaluation.label_values_seen(), &seen);
  std::vector<std::string> warnings;
  for (size_t i = 0; i < values.size(); ++i) {
    if (HasOccurred(seen, i)) continue;
    if (warnings.size() == kMostWarnings) break;
    warnings.push_back(absl::StrCat(
        "data.label.", i < static_cast<size_t>(label.positive_size()) ? "positive" : "negative",
        ": the value ", QuotedCell(values[i]),
        " never occurs in the data; check how the data spells it"));
  }
  return warnings;
}

}  // namespace sluice
