// Collects what the cells of one column hold: missing values and their spellings, numbers, dates,
// several values in a cell, distinct values, range and quantiles.
//
// Memory: bounded, whatever the number of cells: at most about 150 KiB.
//
// Thread safety: one thread.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/features/date_format.h"
#include "model/profile/distinct_sketch.h"
#include "model/profile/quantile_sketch.h"
#include "model/profile/value_counts.h"

namespace sluice {

enum class ColumnKind { kEmpty, kInteger, kNumber, kDate, kText, kSeveralValues };
const char* KindName(ColumnKind kind);

class ColumnProfile {
 public:
  // A spelling of a missing value besides the empty cell, and how often it occurs.
  struct Spelling {
    std::string text;
    uint64_t count = 0;
  };
  // Mean and standard deviation of numbers.
  struct Moments {
    double mean = 0, squares = 0;
    uint64_t count = 0;
    void Add(double value);
    double stddev() const;
  };

  explicit ColumnProfile(std::string name) : name_(std::move(name)) {}

  // Says that the cells are lists of values with `delimiter` between them; `weighted`: each has a
  // weight, which the cells leave out. Call this and the next two before LookAt.
  void SetLists(char delimiter, bool weighted = false) {
    lists_ = true;
    weighted_lists_ = weighted;
    parts_delimiter_ = delimiter;
  }
  // Says that the cells are dates of a form that DatePart names.
  void SetDates(bool with_time);
  // Says that the cells are names of things, even where they look like numbers.
  void SetNames() { names_ = true; }
  // Chooses the forms of dates and the delimiters of several values that Add looks for.
  // `first_cells`: a sample of the column. Call it once, before Add.
  void LookAt(const std::vector<std::string>& first_cells);
  void Add(std::string_view cell);
  // Adds `n` cells without a value.
  void AddMissing(uint64_t n) {
    cells_ += n;
    empty_ += n;
  }

  const std::string& name() const { return name_; }
  ColumnKind kind() const;
  uint64_t cells() const { return cells_; }
  uint64_t empty() const { return empty_; }
  // Spellings that mean "missing" in this column, the most frequent first. Words that may as well
  // be values, such as "none", are among them only where all other cells are numbers or dates.
  std::vector<Spelling> missing_spellings() const;
  // Empty cells and the spellings.
  uint64_t missing() const;
  // Cells that are neither missing nor of the column's kind.
  uint64_t odd_cells() const;
  // Of the cells that are neither empty nor spelled as missing.
  const DistinctSketch& distinct() const { return distinct_; }
  const ValueCounts& values() const { return values_; }
  const QuantileSketch& numbers() const { return numbers_; }
  const Moments& moments() const { return moments_; }
  const Moments& log_moments() const { return log_moments_; }  // of log(1 + max(x, 0))
  bool decimal_comma() const { return comma_numbers_ > plain_numbers_; }
  bool has_leading_zeros() const { return leading_zeros_ > 0; }
  // kDate: "" for the forms of DatePart, else as date_format.
  std::string date_format() const { return dates_.empty() ? "" : date().form; }
  bool date_has_time() const { return !dates_.empty() && date().has_time; }
  // kDate: in seconds since 1970.
  int64_t earliest() const { return date().earliest; }
  int64_t latest() const { return date().latest; }
  // Different days of the year, 0 to 366.
  size_t days() const { return days_.count(); }
  // kSeveralValues: the delimiter in the text of a cell ("": cells are lists), whether its values
  // have weights, and the distinct values.
  std::string parts_delimiter() const { return lists_ ? "" : parts_delimiter_; }
  bool parts_have_weights() const { return weighted_lists_ || weighted_parts_ > 0; }
  const DistinctSketch& parts() const { return parts_; }
  double parts_per_cell() const;
  // kSeveralValues: the number of values of every cell, if they are the numbers of a vector: not
  // all of them whole, and the same number in each cell. 0: they are not.
  size_t vector_size() const;
  const Moments& part_moments() const { return part_moments_; }  // of values that are numbers

 private:
  static constexpr size_t kSpellings = 20;
  static constexpr size_t kMostForms = 4;
  // A form of dates that the cells may have.
  struct DateForm {
    std::string form;
    bool has_time = false;
    DateFormat day_of_year;
    uint64_t count = 0;  // cells of this form
    int64_t earliest = INT64_MAX, latest = INT64_MIN;
  };
  // The form of most cells. REQUIRES: there is one.
  const DateForm& date() const;
  void AddNumber(double value);
  void AddParts(std::string_view cell);
  uint64_t number_cells() const;  // with the decimal mark of the column
  uint64_t present() const;  // cells that are neither empty nor an undoubted spelling of missing
  uint64_t spelled() const;

  const std::string name_;
  uint64_t cells_ = 0, empty_ = 0;
  std::array<uint64_t, kSpellings> spelled_{};
  uint64_t integers_ = 0, plain_numbers_ = 0, comma_numbers_ = 0, leading_zeros_ = 0;
  uint64_t split_cells_ = 0, part_count_ = 0, weighted_parts_ = 0;
  uint64_t number_parts_ = 0, integer_parts_ = 0, fewest_parts_ = UINT64_MAX, most_parts_ = 0;
  std::vector<DateForm> dates_;
  std::bitset<367> days_;
  bool lists_ = false, weighted_lists_ = false;
  bool only_dates_ = false, names_ = false;  // as the type of the column says
  std::string parts_delimiter_;
  bool may_have_weights_ = false;
  DistinctSketch distinct_, parts_;
  ValueCounts values_;
  QuantileSketch numbers_;
  Moments moments_, log_moments_, part_moments_;
};

}  // namespace sluice
