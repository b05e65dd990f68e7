#include "model/features/example_numbers.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "model/features/cell.h"

namespace sluice {
namespace {

bool IsMissingElement(const Cell& value) {
  return value.kind() == Cell::Kind::kMissing ||
         (value.kind() == Cell::Kind::kDouble && std::isnan(value.number()));
}
bool IsMissingElement(std::string_view) { return false; }

}  // namespace

std::string ExampleNumbers::NumberProblem(std::string_view cell) const {
  const std::string no_number = "is not a finite number";
  const auto has = [&](char c) { return cell.find(c) != std::string_view::npos; };
  const bool letters = std::any_of(cell.begin(), cell.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  });
  double value;
  if (f_.csv && !f_.decimal_comma && has(',') && ParseCommaNumber(cell, &value)) {
    return no_number +
           "; if ',' is the decimal mark, set data.csv.decimal_mark: \",\" (or clean the data)";
  }
  const char thousands = f_.decimal_comma ? '.' : ',';
  if (std::string digits(cell); has(thousands)) {
    digits.erase(std::remove(digits.begin(), digits.end(), thousands), digits.end());
    if (Number(digits, &value)) {
      return no_number + "; thousands separators are not read: remove each '" + thousands +
             "' from the data";
    }
  }
  // A date, a time, or a place in a text.
  if (cell.size() >= 8 && (has('-') || has('/') || has(':')) && cell[0] >= '0' && cell[0] <= '9' &&
      std::count_if(cell.begin(), cell.end(), [](char c) { return c >= '0' && c <= '9'; }) >= 6) {
    return no_number + "; if it is a date, set date_part (and date_format)";
  }
  if (letters || cell.size() <= 2) {
    return no_number + "; if it means \"missing\", set data.csv.missing: " + QuotedCell(cell);
  }
  return no_number;
}

bool ExampleNumbers::Number(const Cell& cell, double* value) const {
  switch (cell.kind()) {
    case Cell::Kind::kText:
      return Number(cell.text(), value);
    case Cell::Kind::kInteger:
    case Cell::Kind::kInstant:
      *value = static_cast<double>(cell.integer());
      return true;
    case Cell::Kind::kUnsigned:
    case Cell::Kind::kBool:
      *value = static_cast<double>(cell.unsigned_integer());
      return true;
    case Cell::Kind::kDouble:
      *value = cell.number();
      return std::isfinite(*value);
    default:
      return false;
  }
}

std::string ExampleNumbers::NumberProblem(const Cell& cell) const {
  if (IsList(cell)) return kSeveralValues;
  NumberText memory;
  return NumberProblem(TextOf(cell, &memory));
}

template <typename Value>
absl::Status ExampleNumbers::RawNumber(const std::string& feature, int column,
                                       const DateFormat* date, const ExampleValues<Value>& cells,
                                       double* value) const {
  const Value& cell = cells.values[column];
  if (date != nullptr) {
    if (IsInstant(cell)) {
      *value = date->PartOfInstant(InstantOf(cell));
      return absl::OkStatus();
    }
    int number;
    NumberText memory;
    const std::string_view text = TextOf(cell, &memory);
    if (IsList(cell)) return CellError(feature, f_.columns[column], cell, kSeveralValues);
    if (!date->Parse(text, &number))
      return CellError(feature, f_.columns[column], cell, date->ProblemOf(text));
    *value = number;
    return absl::OkStatus();
  }
  if (!Number(cell, value))
    return CellError(feature, f_.columns[column], cell, NumberProblem(cell));
  return absl::OkStatus();
}

template <typename Value>
absl::Status ExampleNumbers::NumberOf(const CompiledNumeric& numeric,
                                      const ExampleValues<Value>& cells, float* number) const {
  double value = numeric.default_value;
  if (!cells.missing[numeric.column]) {
    SLUICE_RETURN_IF_ERROR(
        RawNumber(numeric.feature, numeric.column, numeric.date.get(), cells, &value));
  }
  if (Normalize(numeric, value, number)) return absl::OkStatus();
  return CellError(numeric.feature, f_.columns[numeric.column], cells.values[numeric.column],
                   "is too large for a float");
}

template <typename Value>
absl::Status ExampleNumbers::WrongLength(const CompiledNumeric& numeric, const Value& cell,
                                         size_t has) const {
  return CellError(
      numeric.feature, f_.columns[numeric.column], cell,
      absl::StrCat("has ", has, has == 1 ? " value" : " values", ", and the feature's dim is ",
                   numeric.dim,
                   has == 1 && numeric.delimiter == 0
                       ? "; if it is a text of several numbers, set multi_value_delimiter"
                       : "; correct the data, or dim"));
}

template <typename Value>
absl::Status ExampleNumbers::ElementOf(const CompiledNumeric& numeric, const Value& value,
                                       float* number) const {
  double parsed = numeric.default_value;
  if (!IsMissingElement(value)) {
    NumberText memory;
    if (!Number(value, &parsed)) {
      if (!HasText(value) || f_.IsAbsent(TextOf(value, &memory))) {
        parsed = numeric.default_value;
      } else {
        return CellError(numeric.feature, f_.columns[numeric.column], value,
                         absl::StrCat("in a vector ", NumberProblem(value)));
      }
    }
  }
  if (Normalize(numeric, parsed, number)) return absl::OkStatus();
  return CellError(numeric.feature, f_.columns[numeric.column], value,
                   "in a vector is too large for a float");
}

absl::Status ExampleNumbers::VectorOf(const CompiledNumeric& numeric, std::string_view cell,
                                      float* numbers) const {
  char delimiter = numeric.delimiter;
  std::string_view rest = cell;
  // A list as Python or JSON prints it; NumPy leaves out the commas.
  const bool list = cell.size() >= 2 && cell.front() == '[' && cell.back() == ']';
  if (list) {
    rest = Trimmed(rest.substr(1, rest.size() - 2), true);
    const bool commas = rest.find(',') != std::string_view::npos;
    if (delimiter == 0 || commas) delimiter = commas ? ',' : ' ';
  }
  size_t count = 0;
  while (!list || !rest.empty()) {
    const size_t end = delimiter == 0 ? rest.size() : std::min(rest.find(delimiter), rest.size());
    const std::string_view value = Trimmed(rest.substr(0, end), list || f_.trim_parts);
    // Several blanks are one delimiter, and those at the ends are none.
    if (delimiter != ' ' || !value.empty()) {
      if (count++ < numeric.dim)
        SLUICE_RETURN_IF_ERROR(ElementOf(numeric, value, numbers + count - 1));
    }
    if (end == rest.size()) break;
    rest.remove_prefix(end + 1);
  }
  return count == numeric.dim ? absl::OkStatus() : WrongLength(numeric, cell, count);
}

absl::Status ExampleNumbers::VectorOf(const CompiledNumeric& numeric, const Cell& cell,
                                      float* numbers) const {
  if (cell.kind() == Cell::Kind::kText) return VectorOf(numeric, cell.text(), numbers);
  const Cell* const values = IsList(cell) ? cell.values() : &cell;
  const size_t size = IsList(cell) ? cell.size() : 1;
  if (IsList(cell) && cell.weights() != nullptr) {
    return CellError(numeric.feature, f_.columns[numeric.column], cell,
                     "has pairs of a value and a weight, and a vector has numbers only");
  }
  if (size != numeric.dim) return WrongLength(numeric, cell, size);
  for (size_t i = 0; i < size; ++i)
    SLUICE_RETURN_IF_ERROR(ElementOf(numeric, values[i], numbers + i));
  return absl::OkStatus();
}

template <typename Value>
absl::Status ExampleNumbers::VectorOf(const CompiledNumeric& numeric,
                                      const ExampleValues<Value>& cells, float* numbers) const {
  if (!cells.missing[numeric.column])
    return VectorOf(numeric, cells.values[numeric.column], numbers);
  SLUICE_RETURN_IF_ERROR(ElementOf(numeric, Cell(), numbers));
  std::fill_n(numbers + 1, numeric.dim - 1, numbers[0]);
  return absl::OkStatus();
}

// For both kinds of cells.
template absl::Status ExampleNumbers::NumberOf(const CompiledNumeric&, const ExampleText&,
                                               float*) const;
template absl::Status ExampleNumbers::NumberOf(const CompiledNumeric&, const ExampleValues<Cell>&,
                                               float*) const;
template absl::Status ExampleNumbers::VectorOf(const CompiledNumeric&, const ExampleText&,
                                               float*) const;
template absl::Status ExampleNumbers::VectorOf(const CompiledNumeric&, const ExampleValues<Cell>&,
                                               float*) const;
template absl::Status ExampleNumbers::RawNumber(const std::string&, int, const DateFormat*,
                                                const ExampleText&, double*) const;
template absl::Status ExampleNumbers::RawNumber(const std::string&, int, const DateFormat*,
                                                const ExampleValues<Cell>&, double*) const;

}  // namespace sluice
