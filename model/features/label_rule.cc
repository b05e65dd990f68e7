#include "model/features/label_rule.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "model/features/cell.h"

namespace sluice {
absl::StatusOr<LabelRule> LabelRule::Create(const DataConfig& data) {
  const LabelConfig& config = data.label();
  LabelRule rule;
  rule.column_ = config.column().empty() ? "label" : config.column();
  rule.positive_.assign(config.positive().begin(), config.positive().end());
  rule.negative_.assign(config.negative().begin(), config.negative().end());
  rule.signed_labels_ = data.format() == DataConfig::LIBSVM;
  rule.has_threshold_ = config.has_positive_at_least();
  rule.threshold_ = config.positive_at_least();
  if (rule.has_threshold_ && !(rule.positive_.empty() && rule.negative_.empty())) {
    return absl::InvalidArgumentError(
        "data.label has both positive_at_least and positive or negative; keep one of the two "
        "rules");
  }
  if (rule.has_threshold_ && !std::isfinite(rule.threshold_)) {
    return absl::InvalidArgumentError(
        "data.label.positive_at_least is not a finite number; set one");
  }
  // Then no value could have label 1.
  if (rule.positive_.empty() && !rule.negative_.empty()) {
    return absl::InvalidArgumentError(
        "data.label.negative is set but positive is not; list the values of label 1 in "
        "data.label.positive");
  }
  for (const std::string& value : rule.negative_) {
    if (IndexOf(rule.positive_, value) >= 0) {
      return absl::InvalidArgumentError(absl::StrCat("data.label has ", QuotedCell(value),
                                                     " in both positive and negative; remove one"));
    }
  }
  return rule;
}

int LabelRule::IndexOf(const std::vector<std::string>& list, std::string_view cell) {
  const auto found = std::find(list.begin(), list.end(), cell);
  return found == list.end() ? -1 : static_cast<int>(found - list.begin());
}

absl::Status LabelRule::Apply(std::string_view cell, float* label, int* value_index) const {
  *value_index = -1;
  // Lists come first; Create refuses them together with a threshold.
  if (!positive_.empty()) {
    *value_index = IndexOf(positive_, cell);
    *label = *value_index >= 0 ? 1 : 0;
    if (*label == 1) return absl::OkStatus();
    const int negative = IndexOf(negative_, cell);
    if (negative >= 0) *value_index = static_cast<int>(positive_.size()) + negative;
    // Without a list of negative values, every other value is one.
    if (negative_.empty() || negative >= 0) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("label column \"", column_, "\": ", QuotedCell(cell),
                     " is in neither data.label.positive nor data.label.negative"));
  }
  double value;
  const bool number = ParseNumber(cell, &value);
  if (has_threshold_) {
    if (!number) {
      return absl::InvalidArgumentError(
          absl::StrCat("label column \"", column_, "\": ", QuotedCell(cell),
                       " is not a number (data.label.positive_at_least needs one)"));
    }
    *label = value >= threshold_ ? 1 : 0;
    return absl::OkStatus();
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
