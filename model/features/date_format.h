// Reads the dates of a column in one form, and takes parts of them in UTC.
//
// Thread safety: immutable.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/config.pb.h"

namespace sluice {

class DateFormat {
 public:
  // `format` as CategoricalFeature.date_format says; empty: the forms that DatePart names.
  // INVALID_ARGUMENT says what is wrong with it, or which directive `part` needs.
  // REQUIRES: part != WHOLE.
  static absl::StatusOr<DateFormat> Create(const std::string& format, DatePart part);

  // False when the cell is not such a date, or lacks the time that the part needs.
  bool Parse(std::string_view cell, int* value) const;

  // The same for the moment itself, in seconds since 1970; midnight where the cell has no time.
  bool ParseInstant(std::string_view cell, int64_t* seconds) const;

  // The part of a time in seconds since 1970, whatever the form of texts is.
  int PartOfInstant(int64_t seconds) const;

  // Says which form a cell that does not parse should have, and which option may help, such as
  // "is not a date \"YYYY-MM-DD HH:MM\" ...".
  std::string ProblemOf(std::string_view cell) const;

  // The usual formats that read the cell and give the part, three at most. Slow: for messages.
  static std::vector<std::string> FittingFormats(std::string_view cell, DatePart part);

 private:
  // One element of the pattern.
  struct Step {
    char directive = 0;  // as in strptime; 0: the character `plain`; ' ': any number of blanks
    char plain = 0;
  };
  enum class Form { kDefault, kPattern, kSeconds, kMilliseconds };

  static constexpr size_t kMostFitting = 3;

  // False, or calls one of the two: of_seconds(seconds since 1970), of_moment(calendar and clock).
  template <typename OfSeconds, typename OfMoment>
  bool Read(std::string_view cell, OfSeconds of_seconds, OfMoment of_moment) const;

  std::string text_;
  DatePart part_ = YEAR;
  Form form_ = Form::kDefault;
  int year_ = 1970;  // of dates whose pattern has no year
  std::vector<Step> steps_;
};

}  // namespace sluice
