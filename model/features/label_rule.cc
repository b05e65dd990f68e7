#include "model/features/label_rule.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/config/data_format.h"
#include "model/features/cell.h"

namespace sluice {
absl::StatusOr<LabelRule> LabelRule::Create(const DataConfig& data, bool any_number) {
  const LabelConfig& config = data.label();
  LabelRule rule;
  rule.column_ = config.column().empty() ? "label" : config.column();
  rule.decimal_comma_ = data.csv().decimal_mark() == ",";
  rule.positive_ = rule.ValuesOf(config.positive());
  rule.negative_ = rule.ValuesOf(config.negative());
  rule.any_number_ = any_number;
  rule.signed_labels_ = FormatOf(data).signed_labels;
  rule.has_threshold_ = config.has_positive_at_least();
  rule.threshold_ = config.positive_at_least();
  if (rule.has_threshold_ && !(rule.positive_.texts.empty() && rule.negative_.texts.empty())) {
    return absl::InvalidArgumentError(
        "data.label has both positive_at_least and positive or negative; keep one of the two "
        "rules");
  }
  if (rule.has_threshold_ && !std::isfinite(rule.threshold_)) {
    return absl::InvalidArgumentError(
        "data.label.positive_at_least is not a finite number; set one");
  }
  // Then no value could have label 1.
  if (rule.positive_.texts.empty() && !rule.negative_.texts.empty()) {
    return absl::InvalidArgumentError(
        "data.label.negative is set but positive is not; list the values of label 1 in "
        "data.label.positive");
  }
  for (const std::string& value : rule.negative_.texts) {
    if (rule.IndexOf(rule.positive_, value) >= 0) {
      return absl::InvalidArgumentError(absl::StrCat("data.label has ", QuotedCell(value),
                                                     " in both positive and negative; remove one"));
    }
  }
  return rule;
}

LabelRule::Values LabelRule::ValuesOf(
    const google::protobuf::RepeatedPtrField<std::string>& texts) const {
  Values values;
  values.texts.assign(texts.begin(), texts.end());
  for (size_t i = 0; i < values.texts.size(); ++i) {
    double number;
    if (Number(values.texts[i], &number)) values.numbers.emplace_back(number, static_cast<int>(i));
  }
  return values;
}

int LabelRule::IndexOf(const Values& list, std::string_view cell) const {
  const auto found = std::find(list.texts.begin(), list.texts.end(), cell);
  if (found != list.texts.end()) return static_cast<int>(found - list.texts.begin());
  double number;
  if (list.numbers.empty() || !Number(cell, &number)) return -1;
  for (const auto& [value, index] : list.numbers) {
    if (value == number) return index;
  }
  return -1;
}

absl::Status LabelRule::Apply(std::string_view cell, float* label, int* value_index) const {
  *value_index = -1;
  // Lists come first; Create refuses them together with a threshold.
  if (!positive_.texts.empty()) {
    *value_index = IndexOf(positive_, cell);
    *label = *value_index >= 0 ? 1 : 0;
    if (*label == 1) return absl::OkStatus();
    const int negative = IndexOf(negative_, cell);
    if (negative >= 0) *value_index = static_cast<int>(positive_.texts.size()) + negative;
    // Without a list of negative values, every other value is one.
    if (negative_.texts.empty() || negative >= 0) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("label column \"", column_, "\": ", QuotedCell(cell),
                     " is in neither data.label.positive nor data.label.negative"));
  }
  double value = 0;
  const bool number = Number(cell, &value);
  if (has_threshold_) {
    if (!number) {
      return absl::InvalidArgumentError(
          absl::StrCat("label column \"", column_, "\": ", QuotedCell(cell),
                       " is not a number (data.label.positive_at_least needs one)"));
    }
    *label = value >= threshold_ ? 1 : 0;
    return absl::OkStatus();
  }
  if (any_number_) {
    *label = static_cast<float>(value);
    if (number && std::isfinite(*label)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("label column \"", column_, "\": ", QuotedCell(cell), " is no finite number"));
  }
  // Without a rule a label of 2 may be a class, a count or a mistake, so it is not guessed.
  if (number && (value == 0 || value == 1 || (signed_labels_ && value == -1))) {
    *label = value == 1 ? 1 : 0;
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "label column \"", column_, "\": ", QuotedCell(cell), " is not ",
      signed_labels_ ? "-1, 0 or 1" : "0 or 1", "; set in data.label which values are positive"));
}

}  // namespace sluice
