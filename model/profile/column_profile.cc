#include "model/profile/column_profile.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/hash.h"
#include "model/features/cell.h"

namespace sluice {
namespace {

struct KnownSpelling {
  std::string_view text;
  bool doubtless;  // false: may as well be a value
};
constexpr KnownSpelling kKnownSpellings[] = {
    {"NA", true},    {"N/A", true},   {"n/a", true},    {"#N/A", true}, {"null", true},
    {"NULL", true},  {"Null", true},  {"(null)", true}, {"\\N", true},  {"nan", true},
    {"NaN", true},   {"NAN", true},   {"?", true},      {"na", false},  {"none", false},
    {"None", false}, {"NONE", false}, {"-", false},     {"--", false},  {".", false}};
constexpr size_t kLongestSpelling = 6;

// The index in kKnownSpellings, or -1.
int SpellingOf(std::string_view cell) {
  if (cell.size() > kLongestSpelling || absl::ascii_isdigit(cell.front())) return -1;
  for (size_t i = 0; i < std::size(kKnownSpellings); ++i) {
    if (kKnownSpellings[i].text == cell) return static_cast<int>(i);
  }
  return -1;
}

constexpr double kMostOdd = 0.005;  // share of cells of another kind than their column

bool IsInteger(std::string_view cell) {
  if (!cell.empty() && cell.front() == '-') cell.remove_prefix(1);
  return !cell.empty() && cell.size() <= 20 &&
         std::all_of(cell.begin(), cell.end(), [](char c) { return absl::ascii_isdigit(c); });
}

// Whether the name of a column of integers says that they are dates.
bool NameSaysDate(const std::string& name) {
  const std::string lower = absl::AsciiStrToLower(name);
  for (const char* word : {"date", "time", "hour", "day", "stamp", "_at", "_ts", "created"}) {
    if (absl::StrContains(lower, word)) return true;
  }
  return lower == "ts" || lower == "t" || lower == "dt";
}

bool ParsesAll(const DateFormat& format, const std::vector<std::string>& cells) {
  int value;
  return std::all_of(cells.begin(), cells.end(),
                     [&](const std::string& cell) { return format.Parse(cell, &value); });
}

// Calls part(text) for each part of the cell that is not empty, without blanks around it and
// without the brackets of a printed list.
template <typename F>
void ForEachPart(std::string_view cell, char delimiter, F part) {
  if (cell.size() >= 2 && cell.front() == '[' && cell.back() == ']')
    cell = cell.substr(1, cell.size() - 2);
  while (true) {
    const size_t end = std::min(cell.find(delimiter), cell.size());
    const absl::string_view text = absl::StripAsciiWhitespace(absl::string_view(cell.data(), end));
    if (!text.empty()) part(std::string_view(text.data(), text.size()));
    if (end == cell.size()) return;
    cell.remove_prefix(end + 1);
  }
}

bool IsWeighted(std::string_view part) {
  const size_t colon = part.rfind(':');
  double weight;
  return colon != std::string_view::npos && colon > 0 &&
         ParseNumber(part.substr(colon + 1), &weight);
}

// The delimiter that cuts the cells into values which occur again and again; "" for none.
std::string PartsDelimiterOf(const std::vector<std::string>& cells) {
  constexpr double kLeastSplit = 0.1;
  for (const char delimiter : {'|', ';', ',', '^', '\x01', '\x02', '&', ' '}) {
    std::set<std::string> distinct, whole(cells.begin(), cells.end());
    size_t split = 0, parts = 0, numbers = 0, fractions = 0, first_cell = 0, same = 0;
    for (const std::string& cell : cells) {
      size_t here = 0;
      ForEachPart(cell, delimiter, [&](std::string_view part) {
        ++here;
        double number;
        fractions += ParseNumber(part, &number);
        const size_t colon = IsWeighted(part) ? part.rfind(':') : part.size();
        numbers += IsInteger(part.substr(0, colon));
        distinct.emplace(part.substr(0, colon));
      });
      split += here > 1;
      parts += here;
      if (&cell == &cells.front()) first_cell = here;
      same += here == first_cell;
    }
    // Vectors, whose numbers hardly occur again.
    if (first_cell > 1 && same == cells.size() && fractions == parts)
      return std::string(1, delimiter);
    if (static_cast<double>(split) < kLeastSplit * static_cast<double>(cells.size())) continue;
    // Words of a sentence are no values of a list.
    if (delimiter == ' ' && numbers < parts) continue;
    // The parts of names such as "Doe, Jane" are more than the names, and hardly occur again.
    const bool again = parts >= 2 * cells.size() && distinct.size() * 2 <= parts;
    if (distinct.size() <= whole.size() || again || numbers == parts)
      return std::string(1, delimiter);
  }
  return "";
}

}  // namespace

const char* KindName(ColumnKind kind) {
  switch (kind) {
    case ColumnKind::kEmpty:
      return "empty";
    case ColumnKind::kInteger:
      return "integer";
    case ColumnKind::kNumber:
      return "number";
    case ColumnKind::kDate:
      return "date";
    case ColumnKind::kText:
      return "text";
    case ColumnKind::kSeveralValues:
      return "several values";
  }
  return "";
}

void ColumnProfile::Moments::Add(double value) {
  ++count;
  const double change = value - mean;
  mean += change / static_cast<double>(count);
  squares += change * (value - mean);
}

double ColumnProfile::Moments::stddev() const {
  return count < 2 ? 0 : std::sqrt(squares / static_cast<double>(count));
}

void ColumnProfile::SetDates(bool with_time) {
  only_dates_ = true;
  // The form that DatePart names fits each part.
  dates_.push_back({"", with_time, *DateFormat::Create("", DAY_OF_YEAR)});
}

void ColumnProfile::LookAt(const std::vector<std::string>& first_cells) {
  if (lists_ || only_dates_) return;
  std::vector<std::string> cells;
  bool integers = true, numbers = true;
  double number;
  for (const std::string& cell : first_cells) {
    if (cell.empty() || SpellingOf(cell) >= 0) continue;
    integers = integers && IsInteger(cell);
    numbers = numbers && (ParseNumber(cell, &number) || ParseCommaNumber(cell, &number));
    cells.push_back(cell);
  }
  if (cells.empty()) return;
  if (!numbers || (integers && NameSaysDate(name_))) {
    std::vector<std::string> forms = {""};
    for (std::string& form : DateFormat::FittingFormats(cells.front(), YEAR))
      forms.push_back(std::move(form));
    // A day above 12 in a later cell tells days from months.
    for (std::string& form : DateFormat::FittingFormats(cells.back(), YEAR))
      forms.push_back(std::move(form));
    for (const std::string& form : forms) {
      const auto format = DateFormat::Create(form, DAY_OF_YEAR);
      const bool known = std::any_of(dates_.begin(), dates_.end(),
                                     [&](const DateForm& date) { return date.form == form; });
      if (known || dates_.size() == kMostForms || !format.ok() || !ParsesAll(*format, cells))
        continue;
      const auto hour = DateFormat::Create(form, HOUR);
      dates_.push_back({form, hour.ok() && ParsesAll(*hour, cells), *format});
      if (form.empty()) return;  // others would be the same form in other words
    }
  }
  if (!dates_.empty()) return;
  if (!numbers) parts_delimiter_ = PartsDelimiterOf(cells);
  if (parts_delimiter_.empty()) return;
  size_t weighted = 0, parts = 0;
  for (const std::string& cell : cells) {
    ForEachPart(cell, parts_delimiter_[0], [&](std::string_view part) {
      ++parts;
      weighted += IsWeighted(part);
    });
  }
  may_have_weights_ = weighted == parts;
}

void ColumnProfile::AddNumber(double value) {
  numbers_.Add(value);
  moments_.Add(value);
  log_moments_.Add(std::log1p(std::max(value, 0.0)));
}

void ColumnProfile::AddParts(std::string_view cell) {
  size_t here = 0;
  ForEachPart(cell, parts_delimiter_[0], [&](std::string_view part) {
    ++here;
    if (may_have_weights_ && IsWeighted(part)) {
      ++weighted_parts_;
      part = part.substr(0, part.rfind(':'));
    }
    parts_.AddHash(HashBytes(part, 0));
    double number;
    if (!ParseNumber(part, &number)) return;
    ++number_parts_;
    integer_parts_ += IsInteger(part);
    part_moments_.Add(number);
  });
  part_count_ += here;
  fewest_parts_ = std::min<uint64_t>(fewest_parts_, here);
  most_parts_ = std::max<uint64_t>(most_parts_, here);
  split_cells_ += here > 1;
}

void ColumnProfile::Add(std::string_view cell) {
  ++cells_;
  if (cell.empty()) {
    ++empty_;
    return;
  }
  double value;
  if (ParseNumber(cell, &value)) {
    ++plain_numbers_;
    const bool integer = IsInteger(cell);
    integers_ += integer;
    leading_zeros_ += integer && cell.size() > 1 && cell.front() == '0';
    AddNumber(value);
  } else if (const int spelling = SpellingOf(cell); spelling >= 0) {
    ++spelled_[spelling];
    if (kKnownSpellings[spelling].doubtless) return;
  } else if (ParseCommaNumber(cell, &value)) {
    ++comma_numbers_;
    AddNumber(value);
  }
  for (DateForm& date : dates_) {
    int64_t seconds;
    if (!date.day_of_year.ParseInstant(cell, &seconds)) continue;
    ++date.count;
    date.earliest = std::min(date.earliest, seconds);
    date.latest = std::max(date.latest, seconds);
    days_.set(date.day_of_year.PartOfInstant(seconds));
  }
  if (!parts_delimiter_.empty()) AddParts(cell);
  distinct_.AddHash(HashBytes(cell, 0));
  values_.Add(cell);
}

const ColumnProfile::DateForm& ColumnProfile::date() const {
  return *std::max_element(dates_.begin(), dates_.end(),
                           [](const DateForm& a, const DateForm& b) { return a.count < b.count; });
}

uint64_t ColumnProfile::spelled() const {
  uint64_t sum = 0;
  for (size_t i = 0; i < kSpellings; ++i) sum += kKnownSpellings[i].doubtless ? spelled_[i] : 0;
  return sum;
}

uint64_t ColumnProfile::number_cells() const {
  // Integers are in a column of numbers with a decimal comma as well.
  return decimal_comma() ? plain_numbers_ + comma_numbers_ : plain_numbers_;
}

uint64_t ColumnProfile::present() const { return cells_ - empty_ - spelled(); }

ColumnKind ColumnProfile::kind() const {
  static_assert(std::size(kKnownSpellings) == kSpellings);
  const uint64_t all = present();
  if (all == 0) return ColumnKind::kEmpty;
  uint64_t doubtful = 0;
  for (size_t i = 0; i < kSpellings; ++i)
    doubtful += kKnownSpellings[i].doubtless ? 0 : spelled_[i];
  if (lists_) return ColumnKind::kSeveralValues;
  if (only_dates_) return ColumnKind::kDate;
  if (doubtful == all) return ColumnKind::kText;
  // Few cells of another kind are malformed, or spell a missing value in a way that is not known.
  const auto nearly = [&](uint64_t of_kind) {
    return static_cast<double>(all - doubtful - of_kind) <= kMostOdd * static_cast<double>(all);
  };
  if (!dates_.empty() && nearly(date().count)) return ColumnKind::kDate;
  if (nearly(number_cells()) && !names_)
    return integers_ == number_cells() ? ColumnKind::kInteger : ColumnKind::kNumber;
  if (!parts_delimiter_.empty() && split_cells_ * 20 >= all) return ColumnKind::kSeveralValues;
  return ColumnKind::kText;
}

std::vector<ColumnProfile::Spelling> ColumnProfile::missing_spellings() const {
  const ColumnKind of = kind();
  const bool strict =
      of == ColumnKind::kInteger || of == ColumnKind::kNumber || of == ColumnKind::kDate;
  std::vector<Spelling> found;
  for (size_t i = 0; i < kSpellings; ++i) {
    if (spelled_[i] == 0 || (!strict && !kKnownSpellings[i].doubtless)) continue;
    found.push_back({std::string(kKnownSpellings[i].text), spelled_[i]});
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Spelling& a, const Spelling& b) { return a.count > b.count; });
  return found;
}

uint64_t ColumnProfile::missing() const {
  uint64_t sum = empty_;
  for (const Spelling& spelling : missing_spellings()) sum += spelling.count;
  return sum;
}

uint64_t ColumnProfile::odd_cells() const {
  const uint64_t there = cells_ - missing();
  switch (kind()) {
    case ColumnKind::kInteger:
    case ColumnKind::kNumber:
      return there - std::min(there, number_cells());
    case ColumnKind::kDate:
      return there - std::min(there, date().count);
    default:
      return 0;
  }
}

size_t ColumnProfile::vector_size() const {
  const bool vectors = part_count_ > 0 && !parts_have_weights() && number_parts_ == part_count_ &&
                       integer_parts_ < part_count_ && fewest_parts_ == most_parts_;
  return vectors && most_parts_ > 1 ? most_parts_ : 0;
}

double ColumnProfile::parts_per_cell() const {
  return present() == 0 ? 0 : static_cast<double>(part_count_) / static_cast<double>(present());
}

}  // namespace sluice
