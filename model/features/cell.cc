#include "model/features/cell.h"

#include <charconv>
#include <cmath>
#include <system_error>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

struct Date {
  int year = 0, month = 0, day = 0;
  int hour = -1, minute = -1;  // -1: no time
};

// Takes `digits` decimal digits off the front of *text.
bool TakeDigits(std::string_view* text, int digits, int* value) {
  if (text->size() < static_cast<size_t>(digits)) return false;
  *value = 0;
  for (int i = 0; i < digits; ++i) {
    const char c = (*text)[i];
    if (c < '0' || c > '9') return false;
    *value = *value * 10 + (c - '0');
  }
  text->remove_prefix(digits);
  return true;
}

bool TakeChar(std::string_view* text, char c) {
  if (text->empty() || text->front() != c) return false;
  text->remove_prefix(1);
  return true;
}

bool IsLeap(int year) { return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0; }

int DaysInMonth(int year, int month) {
  constexpr int kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  return month == 2 && IsLeap(year) ? 29 : kDays[month - 1];
}

int DayOfYear(const Date& date) {
  int day = date.day;
  for (int month = 1; month < date.month; ++month) day += DaysInMonth(date.year, month);
  return day;
}

// From 1, which is Monday, to 7.
int DayOfWeek(const Date& date) {
  const int y = date.year;
  const int leap_days = y == 0 ? 0 : (y - 1) / 4 - (y - 1) / 100 + (y - 1) / 400 + 1;
  const int days = y * 365 + leap_days + DayOfYear(date) - 1;  // since 0000-01-01, a Saturday
  return (days + 5) % 7 + 1;
}

bool ParseTime(std::string_view text, Date* date) {
  int second = 0;
  if (!TakeDigits(&text, 2, &date->hour) || !TakeChar(&text, ':') ||
      !TakeDigits(&text, 2, &date->minute)) {
    return false;
  }
  if (!text.empty() && !(TakeChar(&text, ':') && TakeDigits(&text, 2, &second))) return false;
  // A leap second has the number 60.
  return text.empty() && date->hour <= 23 && date->minute <= 59 && second <= 60;
}

bool ParseDate(std::string_view text, Date* date) {
  if (!TakeDigits(&text, 4, &date->year) || !TakeChar(&text, '-') ||
      !TakeDigits(&text, 2, &date->month) || !TakeChar(&text, '-') ||
      !TakeDigits(&text, 2, &date->day)) {
    return false;
  }
  if (date->month < 1 || date->month > 12) return false;
  if (date->day < 1 || date->day > DaysInMonth(date->year, date->month)) return false;
  if (text.empty()) return true;
  if (!TakeChar(&text, ' ') && !TakeChar(&text, 'T')) return false;
  return ParseTime(text, date);
}

// Parses at most 15 digits, which a double holds exactly, after an optional '-'. False for any
// other cell.
bool ParseWholeNumber(std::string_view cell, double* value) {
  const bool negative = !cell.empty() && cell[0] == '-';
  if (negative) cell.remove_prefix(1);
  if (cell.empty() || cell.size() > 15) return false;
  int64_t number = 0;
  for (const char c : cell) {
    const unsigned digit = static_cast<unsigned char>(c) - '0';
    if (digit > 9) return false;
    number = number * 10 + digit;
  }
  *value = static_cast<double>(number);
  if (negative) *value = -*value;
  return true;
}

}  // namespace

bool internal::ParseAnyNumber(std::string_view cell, double* value) {
  // Most cells are short whole numbers, for which this is several times as fast as from_chars.
  if (ParseWholeNumber(cell, value)) return true;
  // from_chars takes no plus sign, which LIBSVM files have before labels.
  if (cell.size() > 1 && cell[0] == '+' && cell[1] != '-') cell.remove_prefix(1);
  const char* end = cell.data() + cell.size();
  const auto [rest, error] = std::from_chars(cell.data(), end, *value);
  return error == std::errc() && rest == end && std::isfinite(*value);
}

bool ParseDatePart(std::string_view cell, DatePart part, int* value) {
  Date date;
  if (!ParseDate(cell, &date)) return false;
  switch (part) {
    case YEAR:
      *value = date.year;
      return true;
    case MONTH:
      *value = date.month;
      return true;
    case DAY_OF_MONTH:
      *value = date.day;
      return true;
    case DAY_OF_YEAR:
      *value = DayOfYear(date);
      return true;
    case DAY_OF_WEEK:
      *value = DayOfWeek(date);
      return true;
    case HOUR:
      *value = date.hour;
      return date.hour >= 0;
    case MINUTE_OF_DAY:
      *value = date.hour * 60 + date.minute;
      return date.hour >= 0;
    default:
      return false;
  }
}

std::string QuotedCell(std::string_view cell) {
  const bool longer = cell.size() > 40;
  if (longer) cell = cell.substr(0, 40);
  // Cells may hold any bytes, such as escape sequences of a terminal.
  return absl::StrCat("\"", absl::CHexEscape({cell.data(), cell.size()}), longer ? "...\"" : "\"");
}

}  // namespace sluice
