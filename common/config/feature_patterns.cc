#include "common/config/feature_patterns.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"
#include "common/config/config_problem.h"
#include "common/config/data_format.h"

namespace sluice {
namespace {

constexpr char kFeatures[] = "features[";
constexpr size_t kListedColumns = 20;  // most columns that a message lists

absl::Status Refuse(const std::string& text, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("'", text, "' ", why));
}

// A text with one range in it: the text before it, the numbers, and the text after it.
struct Range {
  std::string before, after;
  uint64_t first = 0, last = 0;
  int digits = 0;  // numbers are padded to this many; 0: no padding

  size_t size() const { return last - first + 1; }
  std::string At(size_t i) const {
    return absl::StrCat(before, absl::StrFormat("%0*d", digits, first + i), after);
  }
};

bool IsNumber(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

// nullopt when `text` has no range.
absl::StatusOr<std::optional<Range>> ParseRange(const std::string& text) {
  const size_t dots = text.find("..");
  const size_t open = dots == std::string::npos ? dots : text.rfind('{', dots);
  const size_t close = dots == std::string::npos ? dots : text.find('}', dots);
  if (open == std::string::npos && close == std::string::npos) return std::optional<Range>();
  if (open == std::string::npos || close == std::string::npos)
    return Refuse(text, "has a range without both braces; write it as in {1..59}");
  const std::string first = text.substr(open + 1, dots - open - 1);
  const std::string last = text.substr(dots + 2, close - dots - 2);
  Range range;
  range.before = text.substr(0, open);
  range.after = text.substr(close + 1);
  if (absl::StrContains(range.after, "..") && absl::StrContains(range.after, '{'))
    return Refuse(text, "has two ranges; write a feature for each value of one of them");
  if (!IsNumber(first) || !IsNumber(last))
    return Refuse(
        text, "has a range whose ends are not both numbers; write it as in {1..59} or {01..26}");
  // {01..26} keeps its zeros, as the shell does.
  const bool padded = (first.size() > 1 && first[0] == '0') || (last.size() > 1 && last[0] == '0');
  if (padded && first.size() != last.size()) {
    return Refuse(text, absl::StrCat("pads ", first, " and ", last,
                                     " differently; give both the same number of digits"));
  }
  if (padded) range.digits = static_cast<int>(first.size());
  if (!absl::SimpleAtoi(first, &range.first) || !absl::SimpleAtoi(last, &range.last))
    return Refuse(text, absl::StrCat("has a number that is too large; give at most ", UINT64_MAX));
  if (range.first > range.last) {
    return Refuse(text, absl::StrCat("is an empty range; give the smaller number first: {", last,
                                     "..", first, "}"));
  }
  // Before anything is expanded: a slip of a digit must not take all memory. The difference cannot
  // overflow; last - first + 1 could.
  if (range.last - range.first >= kMaxFeatures) {
    return Refuse(text, absl::StrCat("stands for too many features; a job has at most ",
                                     kMaxFeatures, ": narrow the range"));
  }
  return std::optional<Range>(range);
}

// The range of a field that goes in step with the name's. nullopt when the field has no range, so
// that all single features share its value.
absl::StatusOr<std::optional<Range>> InStep(const std::string& text,
                                            const std::optional<Range>& name) {
  SLUICE_ASSIGN_OR_RETURN(std::optional<Range> range, ParseRange(text));
  if (!range.has_value()) return range;
  if (!name.has_value())
    return Refuse(
        text,
        "has a range, but the feature's name has none; give the name a range of the same length");
  if (range->size() == name->size()) return range;
  return Refuse(text, absl::StrCat("has ", range->size(), " numbers, but the name has ",
                                   name->size(), "; make both the same length"));
}

std::string* ColumnOf(Feature* feature) {
  if (feature->has_numeric()) return feature->mutable_numeric()->mutable_column();
  if (feature->has_categorical()) return feature->mutable_categorical()->mutable_column();
  return nullptr;
}

// The column that the feature reads; "" for a cross.
std::string ColumnRead(const Feature& feature) {
  const std::string& given =
      feature.has_numeric() ? feature.numeric().column() : feature.categorical().column();
  if (!feature.has_numeric() && !feature.has_categorical()) return "";
  return given.empty() ? feature.name() : given;
}

// Appends the single features that `feature` of the file stands for; one when it has no range.
absl::Status AppendSingle(const Feature& feature, const std::string& path,
                          std::vector<Feature>* expanded) {
  auto name = ParseRange(feature.name());
  if (!name.ok()) return AtField(path + ".name", name.status());
  Feature single = feature;
  std::string* const column = ColumnOf(&single);
  std::optional<Range> columns;
  if (column != nullptr) {
    auto range = InStep(*column, *name);
    const char* kind = feature.has_numeric() ? ".numeric.column" : ".categorical.column";
    if (!range.ok()) return AtField(path + kind, range.status());
    columns = *std::move(range);
  }
  std::vector<std::optional<Range>> crossed;
  for (const std::string& part : feature.cross().features()) {
    auto range = InStep(part, *name);
    if (!range.ok()) return AtField(path + ".cross.features", range.status());
    crossed.push_back(*std::move(range));
  }
  const size_t count = name->has_value() ? (*name)->size() : 1;
  if (expanded->size() + count > kMaxFeatures) {
    return AtField(
        path + ".name",
        Refuse(feature.name(),
               absl::StrCat("makes too many features; a job has at most ", kMaxFeatures)));
  }
  for (size_t i = 0; i < count; ++i) {
    if (name->has_value()) single.set_name((*name)->At(i));
    if (columns.has_value()) *column = columns->At(i);
    for (size_t c = 0; c < crossed.size(); ++c) {
      if (crossed[c].has_value())
        *single.mutable_cross()->mutable_features(static_cast<int>(c)) = crossed[c]->At(i);
    }
    expanded->push_back(single);
  }
  return absl::OkStatus();
}

// The part of `text` that the '*' of `pattern` stands for. Nothing when `text` does not match, or
// when that part would be empty.
std::optional<std::string> Match(const std::string& pattern, const std::string& text) {
  const size_t star = pattern.find('*');
  const std::string before = pattern.substr(0, star), after = pattern.substr(star + 1);
  // Also keeps the two from overlapping in a short text.
  if (text.size() <= before.size() + after.size()) return std::nullopt;
  if (!absl::StartsWith(text, before) || !absl::EndsWith(text, after)) return std::nullopt;
  return text.substr(before.size(), text.size() - before.size() - after.size());
}

bool IsWildcard(const Feature& feature) { return absl::StrContains(feature.name(), '*'); }

absl::Status CheckWildcard(const Feature& feature) {
  const auto stars = std::count(feature.name().begin(), feature.name().end(), '*');
  const std::string column = ColumnRead(feature);
  if (feature.kind_case() == Feature::KIND_NOT_SET)
    return Refuse(feature.name(), "has no kind; add numeric {} or categorical {}");
  if (feature.has_cross()) {
    return Refuse(feature.name(),
                  "is a wildcard, which matches columns, but a cross has none; name each cross");
  }
  if (stars > 1) return Refuse(feature.name(), "has more than one '*'; keep one");
  if (std::count(column.begin(), column.end(), '*') == 1) return absl::OkStatus();
  return Refuse(feature.name(), absl::StrCat("has a '*', but its column '", column,
                                             "' does not have one; write both with one '*'"));
}

std::string ListColumns(const std::vector<std::string>& columns) {
  if (columns.empty()) return "none of the data's columns is unused";
  std::vector<std::string> listed(columns.begin(),
                                  columns.begin() + std::min(columns.size(), kListedColumns));
  return absl::StrCat("the unused columns are ", absl::StrJoin(listed, ", "),
                      columns.size() > kListedColumns ? ", ..." : "");
}

// The columns that the label, the weight or a feature without a wildcard uses.
std::set<std::string> UsedColumns(const JobConfig& job) {
  std::set<std::string> used = {job.data().label().column(), job.data().weight_column()};
  if (FormatOf(job.data()).label_first) used.insert("label");
  for (const Feature& feature : job.features()) {
    if (!IsWildcard(feature)) used.insert(ColumnRead(feature));
  }
  return used;
}

}  // namespace

FeaturePatterns::FeaturePatterns(JobConfig* job) : job_(*job) {
  for (const Feature& feature : job_.features()) {
    origins_.push_back(static_cast<int>(written_.size()));
    written_.push_back(feature.name());
  }
}

absl::Status FeaturePatterns::ExpandRanges() {
  std::vector<Feature> expanded;
  std::vector<int> origins;
  for (int i = 0; i < job_.features_size(); ++i) {
    const absl::Status appended =
        AppendSingle(job_.features(i), absl::StrCat(kFeatures, i, "]"), &expanded);
    if (!appended.ok() && absl::StrContains(appended.message(), "many features")) {
      return AtField(FieldOf(appended), absl::InvalidArgumentError(absl::StrCat(
                                            appended.message(), FormatOf(job_.data()).one_hot)));
    }
    SLUICE_RETURN_IF_ERROR(appended);
    origins.resize(expanded.size(), i);
  }
  job_.mutable_features()->Assign(expanded.begin(), expanded.end());
  origins_ = std::move(origins);
  return CheckNames();
}

bool FeaturePatterns::HasWildcards() const {
  return std::any_of(job_.features().begin(), job_.features().end(), &IsWildcard);
}

absl::Status FeaturePatterns::ExpandWildcards(const std::vector<std::string>& columns) {
  // Columns that the user has named are never matched: a wildcard means the rest.
  const std::set<std::string> used = UsedColumns(job_);
  std::vector<std::string> left;
  for (const std::string& column : columns) {
    if (used.count(column) == 0) left.push_back(column);
  }
  std::vector<Feature> expanded;
  std::vector<int> origins;
  for (int i = 0; i < job_.features_size(); ++i) {
    const Feature& feature = job_.features(i);
    const std::string path = absl::StrCat(kFeatures, origins_[i], "].name");
    if (!IsWildcard(feature)) {
      expanded.push_back(feature);
      origins.push_back(origins_[i]);
      continue;
    }
    if (const absl::Status one = CheckWildcard(feature); !one.ok()) return AtField(path, one);
    std::vector<std::string> others;
    for (const std::string& column : left) {
      const auto matched = Match(ColumnRead(feature), column);
      if (!matched.has_value()) {
        others.push_back(column);
        continue;
      }
      Feature single = feature;
      single.set_name(absl::StrReplaceAll(feature.name(), {{"*", *matched}}));
      *ColumnOf(&single) = column;
      expanded.push_back(std::move(single));
      origins.push_back(origins_[i]);
    }
    if (others.size() == left.size()) {
      return AtField(path, Refuse(feature.name(),
                                  absl::StrCat("matches no unused column; ", ListColumns(left))));
    }
    // The first wildcard that matches takes the column, so that none becomes two features by
    // accident.
    left = std::move(others);
  }
  job_.mutable_features()->Assign(expanded.begin(), expanded.end());
  origins_ = std::move(origins);
  return CheckNames();
}

absl::Status FeaturePatterns::CheckNames() const {
  std::map<std::string, int> seen;  // by name, the first feature's origin
  for (int i = 0; i < job_.features_size(); ++i) {
    const auto [first, fresh] = seen.emplace(job_.features(i).name(), origins_[i]);
    const std::string& mine = written_[origins_[i]];
    const std::string& other = written_[first->second];
    const bool of_pattern = mine != first->first || other != first->first;
    // The job's validation reports two features that have the same name without a pattern.
    if (fresh || !of_pattern) continue;
    const std::string path = absl::StrCat(kFeatures, origins_[i], "].name");
    if (first->second == origins_[i]) {
      return AtField(path, Refuse(mine, absl::StrCat("makes two features '", first->first,
                                                     "'; the data names this column twice")));
    }
    return AtField(path,
                   Refuse(mine, absl::StrCat("makes a feature '", first->first, "', and so does '",
                                             other, "'; change one of them")));
  }
  return absl::OkStatus();
}

std::string FeaturePatterns::PathInFile(const std::string& path) const {
  if (!absl::StartsWith(path, kFeatures)) return path;
  const size_t begin = sizeof kFeatures - 1, end = path.find(']');
  uint32_t index;
  if (end == std::string::npos || !absl::SimpleAtoi(path.substr(begin, end - begin), &index) ||
      index >= origins_.size()) {
    return path;
  }
  return absl::StrCat(kFeatures, origins_[index], path.substr(end));
}

}  // namespace sluice
