#include "model/profile/label_choice.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/config/closest_name.h"
#include "common/config/data_format.h"
#include "model/features/cell.h"

namespace sluice {
namespace {

using Counts = std::vector<std::pair<std::string, uint64_t>>;

// A value without the dot that the labels of some test files end with, in lower case.
std::string BareLabel(const std::string& value) {
  std::string bare = absl::AsciiStrToLower(value);
  double number;
  if (bare.size() > 1 && bare.back() == '.' && !ParseNumber(value, &number)) bare.pop_back();
  return bare;
}

// The values of a column that has two, in two groups of spellings, the rarer group first. Empty
// when the column does not have two values.
std::vector<Counts> TwoGroups(const ColumnProfile& column) {
  if (!column.values().exact()) return {};
  std::map<std::string, Counts> groups;
  for (const auto& [value, count] : column.values().Sorted()) {
    double number;
    // 1 and 1.0 are equal as labels.
    const std::string key =
        ParseNumber(value, &number) ? absl::StrCat("=", number) : BareLabel(value);
    groups[key].emplace_back(value, count);
  }
  if (groups.size() != 2) return {};
  std::vector<Counts> two = {groups.begin()->second, std::next(groups.begin())->second};
  const auto sum = [](const Counts& counts) {
    uint64_t all = 0;
    for (const auto& value : counts) all += value.second;
    return all;
  };
  if (sum(two[0]) > sum(two[1])) std::swap(two[0], two[1]);
  return two;
}

// How clearly a value means 1: above 0, or that it means 0: below 0.
int Positivity(const std::string& value) {
  const std::string bare = BareLabel(value);
  double number;
  if (ParseNumber(value, &number)) return number > 0 ? 2 : -2;
  for (const char* word : {"yes", "y", "true", "t", "positive", "pos", "click", "clicked", "buy",
                           "bought", "good", "won", "success", "default"}) {
    if (bare == word) return 2;
  }
  for (const char* word :
       {"no", "n", "false", "f", "negative", "neg", "none", "bad", "lost", "failure"}) {
    if (bare == word) return -2;
  }
  if (absl::StartsWith(bare, ">")) return 1;
  if (absl::StartsWith(bare, "<")) return -1;
  return 0;
}

bool IsZeroOne(const std::vector<Counts>& groups) {
  double a, b;
  return ParseNumber(groups[0][0].first, &a) && ParseNumber(groups[1][0].first, &b) &&
         ((a == 0 && b == 1) || (a == 1 && b == 0));
}

// Higher: more likely the label by its name.
int NameScore(const std::string& name) {
  const std::string lower = absl::AsciiStrToLower(name);
  for (const char* word : {"label", "target", "click", "clicked", "is_click", "is_clicked", "y",
                           "class", "is_attributed", "converted", "conversion"}) {
    if (lower == word) return 4;
  }
  for (const char* word :
       {"outcome",    "survived", "response", "income",   "default", "churn",   "purchase",
        "purchased",  "fraud",    "isfraud",  "is_fraud", "bought",  "deposit", "result",
        "subscribed", "delayed",  "output",   "liked",    "like",    "watched", "relevant"}) {
    if (lower == word) return 3;
  }
  for (const char* part : {"label", "target", "click", "conver", "churn", "fraud"}) {
    if (absl::StrContains(lower, part)) return 2;
  }
  return 0;
}

bool IsRating(const ColumnProfile& column) {
  const std::string lower = absl::AsciiStrToLower(column.name());
  return (column.kind() == ColumnKind::kInteger || column.kind() == ColumnKind::kNumber) &&
         column.distinct().Count() >= 3 && column.distinct().Count() <= 20 &&
         (lower == "rating" || lower == "ratings" || lower == "stars" || lower == "score");
}

// The threshold that cuts the values of a column most evenly.
double EvenThreshold(const ColumnProfile& column) {
  if (column.values().exact()) {
    std::map<double, uint64_t> counts;
    uint64_t all = 0;
    for (const auto& [value, count] : column.values().Sorted()) {
      double number;
      if (!ParseNumber(value, &number)) continue;
      counts[number] += count;
      all += count;
    }
    uint64_t below = 0;
    double best = 0, least = 2;
    for (const auto& [value, count] : counts) {
      const double share = 1 - static_cast<double>(below) / static_cast<double>(all);
      if (below > 0 && std::abs(share - 0.5) < least) {
        least = std::abs(share - 0.5);
        best = value;
      }
      below += count;
    }
    return best;
  }
  return column.numbers().Quantiles({0.5})[0];
}

double ShareOf(const TableProfile& table, const LabelChoice& choice) {
  size_t labelled = 0, positive = 0;
  for (size_t r = 0; r < table.rows.size(); ++r) {
    const int label = choice.LabelOf(table.rows.Cell(r, choice.column));
    labelled += label >= 0;
    positive += label > 0;
  }
  return labelled == 0 ? 0 : static_cast<double>(positive) / static_cast<double>(labelled);
}

// Fills in the values of a column with two, of which `positive` (or the better one) means 1.
void TakeTwo(const std::vector<Counts>& groups, LabelChoice* choice) {
  // LIBSVM's -1 and +1 are read as labels too; named values do no harm there.
  if (IsZeroOne(groups)) return;
  const bool first = Positivity(groups[0][0].first) >= Positivity(groups[1][0].first);
  for (const auto& [value, count] : groups[first ? 0 : 1]) choice->positive.push_back(value);
  for (const auto& [value, count] : groups[first ? 1 : 0]) choice->negative.push_back(value);
}

std::vector<std::string> NamesOf(const TableProfile& table) {
  std::vector<std::string> names;
  for (const ColumnProfile& column : table.columns) names.push_back(column.name());
  return names;
}

absl::StatusOr<size_t> FindColumn(const TableProfile& table, const std::string& name) {
  const std::vector<std::string> names = NamesOf(table);
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) return static_cast<size_t>(found - names.begin());
  const std::string closest = ClosestName(name, names);
  std::vector<std::string> shown(names.begin(), names.begin() + std::min<size_t>(names.size(), 50));
  return absl::InvalidArgumentError(
      absl::StrCat("--label: the data has no column \"", name, "\"",
                   closest.empty() ? "" : absl::StrCat("; did you mean \"", closest, "\"?"),
                   "; its columns are: ", absl::StrJoin(shown, ", "),
                   shown.size() < names.size() ? ", ..." : ""));
}

absl::StatusOr<LabelChoice> LabelAsWanted(const TableProfile& table, const std::string& wanted) {
  LabelChoice choice;
  choice.why = "--label names it";
  const std::vector<std::string> names = NamesOf(table);
  const bool whole = std::find(names.begin(), names.end(), wanted) != names.end();
  const size_t least = whole ? std::string::npos : wanted.find(">=");
  const size_t equal = whole || least != std::string::npos ? std::string::npos : wanted.find('=');
  const std::string name = wanted.substr(0, std::min(least, equal));
  auto column = FindColumn(table, name);
  if (!column.ok()) return column.status();
  choice.column = *column;
  const ColumnProfile& profile = table.columns[choice.column];
  const bool numbers =
      profile.kind() == ColumnKind::kInteger || profile.kind() == ColumnKind::kNumber;
  if (least != std::string::npos) {
    if (!numbers || !absl::SimpleAtod(wanted.substr(least + 2), &choice.threshold)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--label=", wanted, ": ",
                       numbers ? "what follows >= is no number" : "the column holds no numbers",
                       "; give COLUMN>=NUMBER, or COLUMN=VALUE"));
    }
    choice.has_threshold = true;
  } else if (equal != std::string::npos) {
    choice.positive.push_back(wanted.substr(equal + 1));
    const auto& counts = profile.values().Sorted();
    const bool occurs = std::any_of(counts.begin(), counts.end(), [&](const auto& value) {
      return value.first == choice.positive[0];
    });
    if (!occurs && profile.values().exact()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--label=", wanted, ": the column \"", name, "\" does not hold this value; it holds ",
          counts.empty() ? "nothing" : counts[0].first, counts.size() > 1 ? ", " : "",
          counts.size() > 1 ? counts[1].first : "", counts.size() > 2 ? ", ..." : ""));
    }
  } else if (const auto groups = TwoGroups(profile); !groups.empty()) {
    TakeTwo(groups, &choice);
  } else if (profile.distinct().Count() < 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--label=", wanted, ": the column has ", profile.distinct().Count(),
        " distinct values in what was looked at, and a label needs two; --all looks at "
        "everything"));
  } else if (numbers) {
    choice.has_threshold = true;
    choice.threshold = EvenThreshold(profile);
    absl::StrAppend(&choice.why, "; it has more than two values, so that 1 means at least ",
                    choice.threshold, ", which halves the examples (--label=\"", name,
                    ">=NUMBER\" for another threshold)");
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("--label=", wanted, ": the column has ", profile.distinct().Count(),
                     " distinct values; say which of them means 1: --label=\"", name, "=VALUE\""));
  }
  return choice;
}

}  // namespace

int LabelChoice::LabelOf(std::string_view cell) const {
  double number;
  const bool is_number = ParseNumber(cell, &number);
  if (has_threshold) return is_number ? number >= threshold : -1;
  if (positive.empty()) return is_number && (number == 0 || number == 1) ? number == 1 : -1;
  if (std::find(positive.begin(), positive.end(), cell) != positive.end()) return 1;
  if (negative.empty()) return cell.empty() ? -1 : 0;
  return std::find(negative.begin(), negative.end(), cell) != negative.end() ? 0 : -1;
}

absl::StatusOr<LabelChoice> ChooseLabel(const TableProfile& table, const std::string& wanted) {
  if (!wanted.empty()) {
    auto choice = LabelAsWanted(table, wanted);
    if (choice.ok()) choice->positive_share = ShareOf(table, *choice);
    return choice;
  }
  struct Candidate {
    size_t column = 0;
    int score = 0;
  };
  std::vector<Candidate> candidates;
  const bool first_is_label = FormatOf(table.shape.data).label_first;
  for (size_t c = 0; c < table.columns.size(); ++c) {
    const ColumnProfile& column = table.columns[c];
    if (first_is_label && c > 0) break;
    if (IsRating(column)) {
      candidates.push_back({c, 7});
      continue;
    }
    const auto groups = TwoGroups(column);
    if (column.kind() == ColumnKind::kDate) continue;
    // Labels are hardly ever missing.
    if (groups.empty() || column.missing() * 20 > column.cells()) continue;
    int score = 2 * NameScore(column.name());
    if (IsZeroOne(groups)) score += 2;
    score += 2 * (std::abs(Positivity(groups[0][0].first) - Positivity(groups[1][0].first)) >= 2);
    if (c == 0) score += 2;
    if (c + 1 == table.columns.size()) score += 3;
    candidates.push_back({c, score});
  }
  if (candidates.empty()) {
    return absl::InvalidArgumentError(
        first_is_label
            ? "the labels of the lines are not two values, as 0 and 1, in what was looked at"
            : "no column has two values, as a label has; name one, with what means 1: "
              "--label=COLUMN, --label=\"COLUMN=VALUE\" or --label=\"COLUMN>=NUMBER\"");
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.score > b.score; });
  const Candidate best = candidates[0];
  const auto name_of = [&](const Candidate& candidate) -> const std::string& {
    return table.columns[candidate.column].name();
  };
  if (candidates.size() > 1 && candidates[1].score == best.score) {
    return absl::InvalidArgumentError(absl::StrCat(
        "several columns may be the label: ", name_of(best), " and ", name_of(candidates[1]),
        candidates.size() > 2 ? " among others" : "", "; name it: --label=", name_of(best)));
  }
  LabelChoice choice;
  choice.column = best.column;
  for (size_t i = 1; i < candidates.size(); ++i) choice.others.push_back(name_of(candidates[i]));
  const ColumnProfile& column = table.columns[best.column];
  if (const auto groups = TwoGroups(column); !groups.empty()) {
    TakeTwo(groups, &choice);
    choice.why = candidates.size() == 1 ? "it is the only column with two values"
                 : NameScore(column.name()) > 0
                     ? "its name and its two values are those of a label"
                     : "it has two values and is where a label usually is";
  } else {
    choice.has_threshold = true;
    choice.threshold = EvenThreshold(column);
    choice.why = absl::StrCat("it holds ratings, as in MovieLens' data; 1 means at least ",
                              choice.threshold, ", which halves the examples best");
  }
  choice.positive_share = ShareOf(table, choice);
  return choice;
}

}  // namespace sluice
