#include "model/features/date_format.h"

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "model/features/cell.h"

namespace sluice {
namespace {

constexpr int64_t kSecondsOfDay = 24 * 60 * 60;

// A date of the proleptic Gregorian calendar, and a time if it has one.
struct Moment {
  int year = 1970, month = 1, day = 1;
  int day_of_year = 0;  // 0: month and day hold
  int hour = -1, minute = 0, second = 0;
  int offset_s = 0;  // of the local time to UTC
};

// Takes `least` to `most` decimal digits off the front of *text.
bool TakeDigits(std::string_view* text, size_t least, size_t most, int* value) {
  size_t n = 0;
  *value = 0;
  for (; n < most && n < text->size() && absl::ascii_isdigit((*text)[n]); ++n)
    *value = *value * 10 + ((*text)[n] - '0');
  text->remove_prefix(n);
  return n >= least;
}

bool TakeChar(std::string_view* text, char c) {
  if (text->empty() || text->front() != c) return false;
  text->remove_prefix(1);
  return true;
}

// Takes ".5", ".123456" or ",5" off the front, if it is there.
void TakeFraction(std::string_view* text) {
  if (text->size() < 2 || (text->front() != '.' && text->front() != ',') ||
      !absl::ascii_isdigit((*text)[1])) {
    return;
  }
  text->remove_prefix(1);
  text->remove_prefix(std::min(text->find_first_not_of("0123456789"), text->size()));
}

// Takes "Z", "UTC", "GMT" or an offset such as +02:00, +0200 or +02.
bool TakeOffset(std::string_view* text, int* offset_s) {
  *offset_s = 0;
  if (TakeChar(text, 'Z') || TakeChar(text, 'z')) return true;
  for (const std::string_view name : {"UTC", "GMT"}) {
    if (text->substr(0, name.size()) != name) continue;
    text->remove_prefix(name.size());
    return true;
  }
  const bool behind = TakeChar(text, '-');
  int hours = 0, minutes = 0;
  if ((!behind && !TakeChar(text, '+')) || !TakeDigits(text, 2, 2, &hours)) return false;
  const bool colon = TakeChar(text, ':');
  const bool more = !text->empty() && absl::ascii_isdigit(text->front());
  if ((colon || more) && !TakeDigits(text, 2, 2, &minutes)) return false;
  if (hours > 23 || minutes > 59) return false;
  *offset_s = (behind ? -1 : 1) * (hours * 60 + minutes) * 60;
  return true;
}

// Takes an English month, in full or its first three letters.
bool TakeMonth(std::string_view* text, int* month) {
  static constexpr std::string_view kMonths[] = {"january",   "february", "march",    "april",
                                                 "may",       "june",     "july",     "august",
                                                 "september", "october",  "november", "december"};
  for (int m = 0; m < 12; ++m) {
    for (const size_t size : {kMonths[m].size(), size_t{3}}) {
      const std::string_view begin = text->substr(0, size);
      if (begin.size() < size || absl::AsciiStrToLower({begin.data(), size}) !=
                                     absl::string_view(kMonths[m].data(), size)) {
        continue;
      }
      text->remove_prefix(size);
      *month = m + 1;
      return true;
    }
  }
  return false;
}

bool IsLeap(int year) { return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0; }

int DaysInMonth(int year, int month) {
  constexpr int kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  return month == 2 && IsLeap(year) ? 29 : kDays[month - 1];
}

bool IsValid(const Moment& m) {
  if (m.day_of_year > 0) {
    if (m.day_of_year > (IsLeap(m.year) ? 366 : 365)) return false;
  } else if (m.month < 1 || m.month > 12 || m.day < 1 || m.day > DaysInMonth(m.year, m.month)) {
    return false;
  }
  // A leap second has the number 60.
  return m.hour <= 23 && m.minute <= 59 && m.second <= 60;
}

// Days since 1970-01-01, by H. Hinnant, "chrono-Compatible Low-Level Date Algorithms".
int64_t DaysFromCivil(int64_t y, int month, int day) {
  y -= month <= 2;
  const int64_t era = (y >= 0 ? y : y - 399) / 400;
  const int64_t of_era = y - era * 400;
  const int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

// The inverse.
void CivilFromDays(int64_t days, int* year, int* month, int* day) {
  days += 719468;
  const int64_t era = (days >= 0 ? days : days - 146096) / 146097;
  const int64_t of_era = days - era * 146097;
  const int64_t years = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
  const int64_t of_year = of_era - (365 * years + years / 4 - years / 100);
  const int64_t shifted = (5 * of_year + 2) / 153;
  *day = static_cast<int>(of_year - (153 * shifted + 2) / 5 + 1);
  *month = static_cast<int>(shifted < 10 ? shifted + 3 : shifted - 9);
  *year = static_cast<int>(years + era * 400 + (*month <= 2));
}

// A part of a UTC time in seconds since 1970.
int PartOf(int64_t seconds, DatePart part) {
  int64_t days = seconds / kSecondsOfDay;
  if (seconds % kSecondsOfDay < 0) --days;
  const int64_t second = seconds - days * kSecondsOfDay;
  int year, month, day;
  CivilFromDays(days, &year, &month, &day);
  switch (part) {
    case YEAR:
      return year;
    case MONTH:
      return month;
    case DAY_OF_MONTH:
      return day;
    case DAY_OF_YEAR:
      return static_cast<int>(days - DaysFromCivil(year, 1, 1)) + 1;
    case DAY_OF_WEEK:
      return static_cast<int>(((days + 3) % 7 + 7) % 7) + 1;  // 1970-01-01 was a Thursday
    case HOUR:
      return static_cast<int>(second / 3600);
    default:
      return static_cast<int>(second / 60);
  }
}

int DayOfYear(const Moment& m) {
  int day = m.day;
  for (int month = 1; month < m.month; ++month) day += DaysInMonth(m.year, month);
  return day;
}

// The same for a moment in UTC with month and day, without the way through seconds: this is every
// date of most data.
int PartOf(const Moment& m, DatePart part) {
  switch (part) {
    case YEAR:
      return m.year;
    case MONTH:
      return m.month;
    case DAY_OF_MONTH:
      return m.day;
    case DAY_OF_YEAR:
      return DayOfYear(m);
    case DAY_OF_WEEK:
      return static_cast<int>(((DaysFromCivil(m.year, m.month, m.day) + 3) % 7 + 7) % 7) + 1;
    case HOUR:
      return m.hour;
    default:
      return m.hour * 60 + m.minute;
  }
}

bool NeedsTime(DatePart part) { return part == HOUR || part == MINUTE_OF_DAY; }

int64_t SecondsOf(const Moment& m) {
  const int64_t days = m.day_of_year > 0 ? DaysFromCivil(m.year, 1, 1) + m.day_of_year - 1
                                         : DaysFromCivil(m.year, m.month, m.day);
  // A leap second counts as the second before it.
  return days * kSecondsOfDay + std::max(m.hour, 0) * 3600 + m.minute * 60 +
         std::min(m.second, 59) - m.offset_s;
}

// "YYYY-MM-DD[ HH:MM[:SS[.F]][Z]]".
bool ParseDefault(std::string_view text, Moment* m) {
  if (!TakeDigits(&text, 4, 4, &m->year) || !TakeChar(&text, '-') ||
      !TakeDigits(&text, 2, 2, &m->month) || !TakeChar(&text, '-') ||
      !TakeDigits(&text, 2, 2, &m->day)) {
    return false;
  }
  if (text.empty()) return true;
  if (!TakeChar(&text, ' ') && !TakeChar(&text, 'T')) return false;
  if (!TakeDigits(&text, 2, 2, &m->hour) || !TakeChar(&text, ':') ||
      !TakeDigits(&text, 2, 2, &m->minute))
    return false;
  if (TakeChar(&text, ':')) {
    if (!TakeDigits(&text, 2, 2, &m->second)) return false;
    TakeFraction(&text);
  }
  if (text.empty()) return true;
  TakeChar(&text, ' ');
  return TakeOffset(&text, &m->offset_s) && text.empty();
}

bool TakeDirective(char directive, std::string_view* text, Moment* m) {
  switch (directive) {
    case 'Y':
      return TakeDigits(text, 4, 4, &m->year);
    case 'y':
      if (!TakeDigits(text, 2, 2, &m->year)) return false;
      m->year += m->year < 69 ? 2000 : 1900;  // as strptime
      return true;
    case 'm':
      return TakeDigits(text, 1, 2, &m->month);
    case 'd':
      return TakeDigits(text, 1, 2, &m->day);
    case 'H':
      return TakeDigits(text, 1, 2, &m->hour);
    case 'M':
      return TakeDigits(text, 1, 2, &m->minute);
    case 'S':
      if (!TakeDigits(text, 1, 2, &m->second)) return false;
      TakeFraction(text);
      return true;
    case 'j':
      return TakeDigits(text, 1, 3, &m->day_of_year) && m->day_of_year > 0;
    case 'b':
      return TakeMonth(text, &m->month);
    case 'z':
      return TakeOffset(text, &m->offset_s);
    default:
      text->remove_prefix(std::min(text->find_first_not_of(" \t"), text->size()));
      return true;
  }
}

absl::Status Lacks(const std::string& format, const char* what) {
  return absl::InvalidArgumentError(
      absl::StrCat("date_format \"", format, "\" lacks ", what, ", which date_part needs"));
}

// Whether the pattern gives all that the part is made of.
absl::Status CheckEnough(const std::string& format, const std::string& directives, DatePart part) {
  const auto has = [&](const char* any) {
    return directives.find_first_of(any) != std::string::npos;
  };
  const bool year = has("Yy"), day = has("j") || (has("mb") && has("d"));
  if (part == MINUTE_OF_DAY && !has("M")) return Lacks(format, "%M");
  if (NeedsTime(part)) {
    if (!has("H")) return Lacks(format, "%H");
    // An offset may move the time to another day, which changes neither hour nor minute.
    return absl::OkStatus();
  }
  if (part == DAY_OF_WEEK || part == DAY_OF_YEAR || has("j")) {
    if (!year) return Lacks(format, "%Y or %y");
    return day ? absl::OkStatus() : Lacks(format, "%m (or %b) and %d, or %j");
  }
  if (part == YEAR && !year) return Lacks(format, "%Y or %y");
  if (part == MONTH && !has("mb")) return Lacks(format, "%m or %b");
  if (part == DAY_OF_MONTH && !has("d")) return Lacks(format, "%d");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DateFormat> DateFormat::Create(const std::string& format, DatePart part) {
  DateFormat compiled;
  compiled.text_ = format;
  compiled.part_ = part;
  if (format.empty()) return compiled;
  if (format == "EPOCH_S" || format == "EPOCH_MS") {
    compiled.form_ = format == "EPOCH_S" ? Form::kSeconds : Form::kMilliseconds;
    return compiled;
  }
  compiled.form_ = Form::kPattern;
  std::string directives;
  for (size_t i = 0; i < format.size(); ++i) {
    Step step;
    if (format[i] == ' ') {
      step.directive = ' ';
    } else if (format[i] != '%') {
      step.plain = format[i];
    } else {
      const char c = i + 1 < format.size() ? format[i + 1] : '\0';
      ++i;
      constexpr std::string_view kDirectives = "YymdHMSjbz";
      if (c == '%') {
        step.plain = c;
      } else if (c == '\0' || kDirectives.find(c) == std::string_view::npos) {
        return absl::InvalidArgumentError(absl::StrCat(
            "date_format \"", format, "\" has %", std::string(c == '\0' ? 0 : 1, c),
            "; use %Y %y %m %d %H %M %S %j %b %z and plain characters, or EPOCH_S or EPOCH_MS"));
      } else if (directives.find(c) != std::string::npos) {
        return absl::InvalidArgumentError(
            absl::StrCat("date_format \"", format, "\" has %", std::string(1, c), " twice"));
      } else {
        step.directive = c;
        directives += c;
      }
    }
    compiled.steps_.push_back(step);
  }
  if (directives.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "date_format \"", format,
        "\" has no part of a date; write e.g. \"%Y-%m-%d %H:%M\", or EPOCH_S or EPOCH_MS"));
  }
  const absl::Status enough = CheckEnough(format, directives, part);
  if (!enough.ok()) return enough;
  // A leap year, because 29 February is a date of some year.
  if (directives.find_first_of("Yy") == std::string::npos) compiled.year_ = 2000;
  return compiled;
}

int DateFormat::PartOfInstant(int64_t seconds) const { return PartOf(seconds, part_); }

template <typename OfSeconds, typename OfMoment>
bool DateFormat::Read(std::string_view cell, OfSeconds of_seconds, OfMoment of_moment) const {
  if (form_ == Form::kSeconds || form_ == Form::kMilliseconds) {
    double number;
    if (!ParseNumber(cell, &number)) return false;
    if (form_ == Form::kMilliseconds) number /= 1000;
    // The years 1 to 9999. Other numbers are not dates but something else.
    if (!(number >= -62135596800.0 && number < 253402300800.0)) return false;
    const auto whole = static_cast<int64_t>(number);
    of_seconds(whole - (static_cast<double>(whole) > number));
    return true;
  }
  Moment moment;
  moment.year = year_;
  if (form_ == Form::kDefault) {
    if (!ParseDefault(cell, &moment)) return false;
  } else {
    for (const Step& step : steps_) {
      const bool taken = step.directive != 0 ? TakeDirective(step.directive, &cell, &moment)
                                             : TakeChar(&cell, step.plain);
      if (!taken) return false;
    }
    if (!cell.empty()) return false;
  }
  if (!IsValid(moment) || (NeedsTime(part_) && moment.hour < 0)) return false;
  of_moment(moment);
  return true;
}

bool DateFormat::Parse(std::string_view cell, int* value) const {
  return Read(
      cell, [&](int64_t seconds) { *value = PartOf(seconds, part_); },
      [&](const Moment& moment) {
        const bool plain = moment.offset_s == 0 && moment.day_of_year == 0;
        *value = plain ? PartOf(moment, part_) : PartOf(SecondsOf(moment), part_);
      });
}

bool DateFormat::ParseInstant(std::string_view cell, int64_t* seconds) const {
  return Read(
      cell, [&](int64_t instant) { *seconds = instant; },
      [&](const Moment& moment) { *seconds = SecondsOf(moment); });
}

std::vector<std::string> DateFormat::FittingFormats(std::string_view cell, DatePart part) {
  std::vector<std::string> fitting;
  const auto try_format = [&](const std::string& format) {
    const auto created = Create(format, part);
    int value;
    if (fitting.size() < kMostFitting && created.ok() && created->Parse(cell, &value))
      fitting.push_back(format);
  };
  // Other numbers would be read as moments too, most of them of 1970.
  const bool digits = cell.find_first_not_of("0123456789") == std::string_view::npos;
  if (digits && (cell.size() == 9 || cell.size() == 10)) try_format("EPOCH_S");
  if (digits && (cell.size() == 12 || cell.size() == 13)) try_format("EPOCH_MS");
  for (const char* date : {"%Y%m%d", "%y%m%d", "%Y%m%d%H", "%y%m%d%H", "%Y%m%d%H%M%S"})
    try_format(date);
  for (const char* date : {"%Y-%m-%d", "%Y/%m/%d", "%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%d-%m-%Y",
                           "%m/%d/%y", "%d/%m/%y", "%d %b %Y", "%d-%b-%Y", "%b %d, %Y"}) {
    for (const char* time : {"", " %H:%M", " %H:%M:%S", "T%H:%M:%S", " %H:%M:%S %z"})
      try_format(absl::StrCat(date, time));
  }
  return fitting;
}

std::string DateFormat::ProblemOf(std::string_view cell) const {
  const std::vector<std::string> fitting = FittingFormats(cell, part_);
  if (form_ != Form::kDefault) {
    return absl::StrCat("is not a date of date_format \"", text_, "\"",
                        fitting.empty() ? "" : "; perhaps it is \"",
                        absl::StrJoin(fitting, "\" or \""), fitting.empty() ? "" : "\"");
  }
  const std::string hint =
      fitting.empty() ? absl::StrCat("e.g. \"%d/%m/%Y", NeedsTime(part_) ? " %H:%M" : "",
                                     "\", \"%y%m%d%H\" or EPOCH_S")
                      : absl::StrCat("perhaps \"", absl::StrJoin(fitting, "\" or \""), "\"");
  return absl::StrCat("is not a date \"YYYY-MM-DD",
                      NeedsTime(part_) ? " HH:MM\"" : "\" (a time may follow)",
                      "; for another form set date_format, ", hint);
}

}  // namespace sluice
