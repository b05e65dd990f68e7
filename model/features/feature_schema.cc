#include "model/features/feature_schema.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "model/features/cell.h"
#include "model/features/feature_compiler.h"

namespace sluice {
namespace {

// Weights of examples, besides 0: the metrics sum them in fixed point.
constexpr double kMinWeight = 1e-15, kMaxWeight = 1e12;

// In columns(): label and weight come before the features.
constexpr size_t kFirstFeature = 2;

// A value's key, which crosses combine, and what the feature's own slot appends: the key, or the
// row of a dense feature.
struct ValueKeys {
  uint64_t key = 0;
  uint64_t own = 0;
};

// The keys of a single-valued category; not present when the value is missing.
struct PartKey {
  ValueKeys keys;
  bool present = false;
};
using PartKeys = absl::InlinedVector<PartKey, 32>;

// The cells of an example in the order of columns(): std::string_view for text, or Cell. Both have
// the same code, compiled for each, so that text costs nothing for the other.
template <typename Value>
struct Cells {
  const Value* values;
  const bool* missing;
  DataCounts* counts;  // counts the cell contents; null: they are not counted
};

// What a cell means that stands for one value.
bool IsList(std::string_view) { return false; }
bool IsList(const Cell& cell) { return cell.kind() == Cell::Kind::kList; }

bool HasText(std::string_view cell) { return !cell.empty(); }
bool HasText(const Cell&) { return true; }

constexpr char kNegativeWeight[] = "has a weight below 0, with which pooling MEAN has no meaning";
constexpr char kSeveralValues[] = "has several values, and only one can be read here";

// Doubles hold every whole number below this.
constexpr double kWholeDoubles = 9007199254740992;  // 2^53

// The decimal text of a value that is a category. False for a fraction, and for a double that may
// not be the number that was written.
bool CategoryText(std::string_view cell, NumberText*, std::string_view* text) {
  *text = cell;
  return true;
}
bool CategoryText(const Cell& cell, NumberText* memory, std::string_view* text) {
  if (cell.kind() != Cell::Kind::kDouble) {
    *text = TextOf(cell, memory);
    return true;
  }
  const double value = cell.number();
  if (!(std::abs(value) < kWholeDoubles) || value != std::trunc(value)) return false;
  *text = TextOf(Cell::Integer(static_cast<int64_t>(value)), memory);
  return true;
}

template <typename Value>
absl::Status CellError(const std::string& feature, const std::string& column, const Value& cell,
                       std::string_view problem) {
  NumberText memory;
  return absl::InvalidArgumentError(absl::StrCat("feature \"", feature, "\", column \"", column,
                                                 "\": ", QuotedCell(TextOf(cell, &memory)), " ",
                                                 std::string(problem)));
}

// log1p of a number >= 0, with a table for small whole numbers, which are most counts.
class LogOnePlus {
 public:
  LogOnePlus() {
    for (size_t i = 0; i < kTable; ++i) table_[i] = std::log1p(static_cast<double>(i));
  }
  double operator()(double value) const {
    if (value == 0) return value;  // log1p keeps the sign of -0
    if (!(value >= 1 && value < kTable)) return std::log1p(value);
    const size_t whole = static_cast<size_t>(value);
    return static_cast<double>(whole) == value ? table_[whole] : std::log1p(value);
  }

 private:
  static constexpr size_t kTable = 1024;
  double table_[kTable];
};

// A slot with one hashed value that no cross uses, as most slots are.
struct PlainSlot {
  int column = kNone;
  bool missing_is_value = false;
  uint64_t seed = 0;
  uint64_t hash_buckets = 0;
  uint64_t missing_key = 0;
  bool dense = false;
  uint64_t first_row = 0;  // dense
  size_t run_end = 0;      // the first slot after it that is not plain
};

class CompiledSchema : public FeatureSchema {
 public:
  explicit CompiledSchema(CompiledFeatures features);

  const std::vector<Numeric>& numerics() const override { return f_.numeric_info; }
  const std::vector<Slot>& slots() const override { return f_.slot_info; }
  const std::vector<std::string>& columns() const override { return f_.columns; }
  using FeatureSchema::AppendExample;
  absl::Status AppendExample(const ExampleCells& cells, bool need_label,
                             Batch* batch) const override;
  std::vector<absl::Status> FindProblems(const ExampleCells& cells) const override;
  DataSummary Summarize(const DataCounts& counts) const override;

 private:
  using TextCells = Cells<std::string_view>;
  // Sets which of the typed cells are missing, by columns(), and returns it.
  const bool* FindMissing(const ExampleCells& cells) const;
  template <typename Value>
  absl::Status Append(const Cells<Value>& cells, bool need_label, Batch* batch) const;
  template <typename Value>
  absl::Status AppendAll(const Cells<Value>& cells, bool need_label, Batch* batch) const;
  template <typename Value>
  absl::Status AppendLabel(const Cells<Value>& cells, bool need_label, Batch* batch) const;
  template <typename Value>
  absl::Status AppendWeight(const Cells<Value>& cells, bool need_label, Batch* batch) const;
  template <typename Value>
  std::vector<absl::Status> ProblemsOf(const Cells<Value>& cells) const;
  // The raw number of a cell, or of the part of its date.
  // `date`: of the feature; null: the cell is the number.
  template <typename Value>
  absl::Status RawNumber(const std::string& feature, int column, const DateFormat* date,
                         const Cells<Value>& cells, double* value) const;
  bool Number(std::string_view cell, double* value) const {
    return f_.decimal_comma ? ParseCommaNumber(cell, value) : ParseNumber(cell, value);
  }
  // False for a number that is not finite too.
  bool Number(const Cell& cell, double* value) const;
  // Says why a cell is not a number, and which option would read it.
  std::string NumberProblem(std::string_view cell) const;
  std::string NumberProblem(const Cell& cell) const;
  template <typename Value>
  absl::Status NumberOf(const CompiledNumeric& numeric, const Cells<Value>& cells,
                        float* number) const;
  // INVALID_ARGUMENT when the value of a RAW feature is not a key, or the value is no category.
  template <typename Value>
  absl::Status KeysOfCell(const CompiledCategory& category, const Value& value, DataCounts* counts,
                          ValueKeys* keys) const;
  template <typename Value>
  absl::Status SingleKey(const CompiledCategory& category, const Cells<Value>& cells,
                         PartKey* key) const;
  // The keys of a cell with several values, or with weights.
  absl::Status AppendValues(const CompiledCategory& category, std::string_view cell,
                            DataCounts* counts, Batch* batch) const;
  absl::Status AppendValues(const CompiledCategory& category, const Cell& cell, DataCounts* counts,
                            Batch* batch) const;
  // A value as it is written, with its weight behind the weight_delimiter.
  absl::Status AppendWritten(const CompiledCategory& category, std::string_view value,
                             DataCounts* counts, Batch* batch) const;
  template <typename Value>
  absl::Status AppendValue(const CompiledCategory& category, const Value& value, double weight,
                           DataCounts* counts, Batch* batch) const;
  template <typename Value>
  absl::Status AppendCategory(const CompiledCategory& category, const Cells<Value>& cells,
                              const PartKeys& parts, Batch* batch) const;
  bool IsAbsent(std::string_view text) const {
    return text.empty() || std::find(f_.absent.begin(), f_.absent.end(), text) != f_.absent.end();
  }
  // Appends the keys and offsets of the plain slots from `first` on; returns the next other slot.
  size_t AppendPlainRun(size_t first, const TextCells& cells, Batch* batch) const;
  void AppendCross(const CompiledCross& cross, const PartKeys& parts, Batch* batch) const;

  const CompiledFeatures f_;
  const LogOnePlus log_one_plus_;
  std::vector<PlainSlot> plain_;  // by slots(); column kNone: the slot is not plain
  bool weighted_ = false;         // some values have weights
};

std::string_view Trimmed(std::string_view text, bool trim) {
  if (!trim) return text;
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// Reads a list as Python prints it, such as ['a', "b"] or [1, 2]. False for any other text.
bool ParsePythonList(std::string_view cell, std::vector<std::string>* values) {
  if (cell.size() < 2 || cell.front() != '[' || cell.back() != ']') return false;
  std::string_view rest = Trimmed(cell.substr(1, cell.size() - 2), true);
  while (!rest.empty()) {
    std::string value;
    const char quote = rest.front();
    if (quote == '\'' || quote == '"') {
      size_t i = 1;
      for (; i < rest.size() && rest[i] != quote; ++i) {
        if (rest[i] == '\\' && i + 1 < rest.size()) ++i;
        value += rest[i];
      }
      if (i >= rest.size()) return false;
      rest.remove_prefix(i + 1);
    } else {
      // Only numbers are printed without quotes.
      const size_t end = std::min(rest.find(','), rest.size());
      const std::string_view number = Trimmed(rest.substr(0, end), true);
      double ignored;
      if (!ParseNumber(number, &ignored)) return false;
      value = std::string(number);
      rest.remove_prefix(end);
    }
    values->push_back(std::move(value));
    rest = Trimmed(rest, true);
    if (rest.empty()) break;
    if (rest.front() != ',') return false;
    rest = Trimmed(rest.substr(1), true);
    if (rest.empty()) return false;
  }
  return true;
}

// Weight 1 for the keys that have none yet, at the end of the batch.
void FillKeyWeights(Batch* batch) { batch->key_weights.resize(batch->keys.size(), 1); }

// ValueKey. For 8 bytes, the length of hexadecimal ids, the constant size removes its loops.
inline uint64_t KeyOfBytes(std::string_view value, uint64_t seed) {
  return value.size() == 8 ? ValueKey(std::string_view(value.data(), 8), seed)
                           : ValueKey(value, seed);
}

// The value's index in the vocabulary, or the size of the vocabulary, which then does not have it.
// An empty vocabulary allows all values and gives each the index 0.
size_t FindInVocabulary(const CompiledCategory& category, std::string_view value,
                        DataCounts* counts) {
  if (category.vocabulary.empty()) return 0;
  const auto found = category.vocabulary.find(absl::string_view(value.data(), value.size()));
  const bool known = found != category.vocabulary.end();
  if (counts != nullptr)
    counts->AddValue(category.index, known ? found->second : DataCounts::kOutOfVocabulary);
  return known ? found->second : category.vocabulary.size();
}

// The keys of a value with this hash. `row`: its row among those of the feature if the feature is
// dense and has no hash_buckets.
ValueKeys KeysOfHash(const CompiledCategory& category, uint64_t hash, uint64_t row) {
  ValueKeys keys;
  keys.key = keys.own = FoldKey(hash, category.hash_buckets, category.seed);
  if (category.rows.empty()) return keys;
  keys.own = category.rows.begin + (category.hash_buckets > 0 ? hash % category.hash_buckets : row);
  return keys;
}

ValueKeys KeysOfValue(const CompiledCategory& category, std::string_view value,
                      DataCounts* counts) {
  const size_t index = FindInVocabulary(category, value, counts);
  const bool known = category.vocabulary.empty() || index < category.vocabulary.size();
  return KeysOfHash(category,
                    known ? KeyOfBytes(value, category.seed) : category.unknown.out_of_vocabulary,
                    index);
}

ValueKeys KeysOfMissing(const CompiledCategory& category) {
  return KeysOfHash(category, category.unknown.missing, category.vocabulary.size() + 1);
}

ValueKeys KeysOfBucket(const CompiledCategory& category, size_t bucket) {
  const uint64_t key = category.bucket_keys[bucket];
  return {key, category.rows.empty() ? key : category.rows.begin + bucket};
}

CompiledSchema::CompiledSchema(CompiledFeatures features) : f_(std::move(features)) {
  for (const CompiledSlot& slot : f_.slots) {
    PlainSlot plain;
    if (slot.category != kNone) {
      const CompiledCategory& category = f_.categories[slot.category];
      // A plain slot needs a hash and nothing else. Runs of such slots are most of the work in
      // click data.
      const bool is_plain = category.vocabulary.empty() && !category.bucketed && !category.raw &&
                            category.date == nullptr && category.multi_value_delimiter == 0 &&
                            category.weight_delimiter == 0;
      if (is_plain && category.part == kNone) plain.column = category.column;
      plain.missing_is_value = category.missing_is_value;
      plain.seed = category.seed;
      plain.hash_buckets = category.hash_buckets;
      plain.missing_key = KeysOfMissing(category).own;
      plain.dense = !category.rows.empty();
      plain.first_row = category.rows.begin;
    }
    plain_.push_back(plain);
  }
  weighted_ = weighted();
  // From the back, so that each slot knows where the run of plain slots that it begins ends.
  for (size_t s = plain_.size(); s-- > 0;) {
    const bool goes_on = s + 1 < plain_.size() && plain_[s + 1].column != kNone;
    plain_[s].run_end = goes_on ? plain_[s + 1].run_end : s + 1;
  }
}

std::string CompiledSchema::NumberProblem(std::string_view cell) const {
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

bool CompiledSchema::Number(const Cell& cell, double* value) const {
  switch (cell.kind()) {
    case Cell::Kind::kText:
      return Number(cell.text(), value);
    case Cell::Kind::kInteger:
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

std::string CompiledSchema::NumberProblem(const Cell& cell) const {
  if (IsList(cell)) return kSeveralValues;
  NumberText memory;
  return NumberProblem(TextOf(cell, &memory));
}

template <typename Value>
absl::Status CompiledSchema::RawNumber(const std::string& feature, int column,
                                       const DateFormat* date, const Cells<Value>& cells,
                                       double* value) const {
  const Value& cell = cells.values[column];
  if (date != nullptr) {
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
absl::Status CompiledSchema::NumberOf(const CompiledNumeric& numeric, const Cells<Value>& cells,
                                      float* number) const {
  double value = numeric.default_value;
  if (!cells.missing[numeric.column]) {
    SLUICE_RETURN_IF_ERROR(
        RawNumber(numeric.feature, numeric.column, numeric.date.get(), cells, &value));
  }
  if (numeric.log) value = log_one_plus_(std::max(value, 0.0));
  value = (value - numeric.offset) * numeric.scale;
  // Written as a negation so that NaN is refused too.
  if (!(std::abs(value) <= std::numeric_limits<float>::max())) {
    return CellError(numeric.feature, f_.columns[numeric.column], cells.values[numeric.column],
                     "is too large for a float");
  }
  *number = static_cast<float>(value);
  return absl::OkStatus();
}

template <typename Value>
absl::Status CompiledSchema::KeysOfCell(const CompiledCategory& category, const Value& value,
                                        DataCounts* counts, ValueKeys* keys) const {
  NumberText memory;
  std::string_view text;
  if (!CategoryText(value, &memory, &text)) {
    return CellError(category.feature, f_.columns[category.column], value,
                     "is a fraction, or too large to be exact, and no category; give categories as "
                     "text or whole numbers, or make the feature numeric");
  }
  if (!category.raw) {
    *keys = KeysOfValue(category, text, counts);
    return absl::OkStatus();
  }
  if (!ParseKey(text, &keys->key)) {
    return CellError(category.feature, f_.columns[category.column], value,
                     "is not a whole number of 64 bits, which key: RAW needs; correct the data, or "
                     "remove key");
  }
  keys->own = keys->key;
  return absl::OkStatus();
}

template <typename Value>
absl::Status CompiledSchema::SingleKey(const CompiledCategory& category, const Cells<Value>& cells,
                                       PartKey* key) const {
  // A missing value has a key only where the job says so. Without one, crosses with this part have
  // none either.
  if (cells.missing[category.column]) {
    key->present = category.missing_is_value;
    key->keys = KeysOfMissing(category);
    return absl::OkStatus();
  }
  key->present = true;
  if (IsList(cells.values[category.column])) {
    return CellError(category.feature, f_.columns[category.column], cells.values[category.column],
                     kSeveralValues);
  }
  if (!category.bucketed && category.date == nullptr)
    return KeysOfCell(category, cells.values[category.column], cells.counts, &key->keys);
  double value;
  SLUICE_RETURN_IF_ERROR(
      RawNumber(category.feature, category.column, category.date.get(), cells, &value));
  if (category.bucketed) {
    const auto& bounds = category.boundaries;
    key->keys = KeysOfBucket(
        category, std::upper_bound(bounds.begin(), bounds.end(), value) - bounds.begin());
    return absl::OkStatus();
  }
  // The key of a date's part is that of its decimal text (feature_compiler.h).
  char text[16];
  const auto end = std::to_chars(text, text + sizeof(text), static_cast<int>(value)).ptr;
  key->keys = KeysOfValue(category, std::string_view(text, end - text), cells.counts);
  return absl::OkStatus();
}

absl::Status CompiledSchema::AppendWritten(const CompiledCategory& category, std::string_view value,
                                           DataCounts* counts, Batch* batch) const {
  double weight = 1;
  if (category.weight_delimiter != 0) {
    // The last one, since a value may hold the delimiter and a weight cannot.
    const size_t at = value.rfind(category.weight_delimiter);
    if (at != std::string_view::npos) {
      const std::string_view written = Trimmed(value.substr(at + 1), f_.trim_parts);
      if (!Number(written, &weight) || std::abs(weight) > std::numeric_limits<float>::max()) {
        return CellError(category.feature, f_.columns[category.column], value,
                         "has a weight that is not a finite number");
      }
      if (category.mean && weight < 0) {
        return CellError(category.feature, f_.columns[category.column], value, kNegativeWeight);
      }
      value = Trimmed(value.substr(0, at), f_.trim_parts);
    }
  }
  if (IsAbsent(value)) return absl::OkStatus();
  return AppendValue(category, value, weight, counts, batch);
}

template <typename Value>
absl::Status CompiledSchema::AppendValue(const CompiledCategory& category, const Value& value,
                                         double weight, DataCounts* counts, Batch* batch) const {
  ValueKeys keys;
  SLUICE_RETURN_IF_ERROR(KeysOfCell(category, value, counts, &keys));
  if (weighted_) {
    FillKeyWeights(batch);
    batch->key_weights.push_back(static_cast<float>(weight));
  }
  batch->keys.push_back(keys.own);
  return absl::OkStatus();
}

absl::Status CompiledSchema::AppendValues(const CompiledCategory& category, const Cell& cell,
                                          DataCounts* counts, Batch* batch) const {
  if (cell.kind() == Cell::Kind::kText) return AppendValues(category, cell.text(), counts, batch);
  const Cell* const values = IsList(cell) ? cell.values() : &cell;
  const size_t size = IsList(cell) ? cell.size() : 1;
  const size_t before = batch->keys.size();
  for (size_t i = 0; i < size; ++i) {
    const Cell& value = values[i];
    if (value.kind() == Cell::Kind::kMissing ||
        (value.kind() == Cell::Kind::kDouble && std::isnan(value.number())))
      continue;
    if (IsList(value)) {
      return CellError(category.feature, f_.columns[category.column], value,
                       "is a list within a list, which is not read");
    }
    if (!IsList(cell) || cell.weights() == nullptr) {
      SLUICE_RETURN_IF_ERROR(value.kind() == Cell::Kind::kText
                                 ? AppendWritten(category, value.text(), counts, batch)
                                 : AppendValue(category, value, 1, counts, batch));
      continue;
    }
    if (value.kind() == Cell::Kind::kText && IsAbsent(value.text())) continue;
    const double weight = cell.weights()[i];
    if (!(std::abs(weight) <= std::numeric_limits<float>::max())) {
      return CellError(category.feature, f_.columns[category.column], value,
                       "has a weight that is not a finite number");
    }
    if (category.mean && weight < 0) {
      return CellError(category.feature, f_.columns[category.column], value, kNegativeWeight);
    }
    SLUICE_RETURN_IF_ERROR(AppendValue(category, value, weight, counts, batch));
  }
  if (batch->keys.size() == before && category.missing_is_value)
    batch->keys.push_back(KeysOfMissing(category).own);
  return absl::OkStatus();
}

absl::Status CompiledSchema::AppendValues(const CompiledCategory& category, std::string_view cell,
                                          DataCounts* counts, Batch* batch) const {
  const size_t before = batch->keys.size();
  std::vector<std::string> list;
  if (category.multi_value_delimiter == 0) {
    SLUICE_RETURN_IF_ERROR(AppendWritten(category, cell, counts, batch));
  } else if (category.multi_value_delimiter == ',' && ParsePythonList(cell, &list)) {
    for (const std::string& value : list)
      SLUICE_RETURN_IF_ERROR(AppendWritten(category, value, counts, batch));
  } else {
    while (!cell.empty()) {
      const size_t end = std::min(cell.find(category.multi_value_delimiter), cell.size());
      const std::string_view value = Trimmed(cell.substr(0, end), f_.trim_parts);
      SLUICE_RETURN_IF_ERROR(AppendWritten(category, value, counts, batch));
      cell.remove_prefix(std::min(end + 1, cell.size()));
    }
  }
  // All values are missing, and so is the cell.
  if (batch->keys.size() == before && category.missing_is_value) {
    batch->keys.push_back(KeysOfMissing(category).own);
  }
  return absl::OkStatus();
}

template <typename Value>
absl::Status CompiledSchema::AppendCategory(const CompiledCategory& category,
                                            const Cells<Value>& cells, const PartKeys& parts,
                                            Batch* batch) const {
  const Value& cell = cells.values[category.column];
  const bool values = category.multi_value_delimiter != 0 || category.weight_delimiter != 0 ||
                      (IsList(cell) && !category.bucketed && category.date == nullptr);
  if (values && !cells.missing[category.column])
    return AppendValues(category, cell, cells.counts, batch);
  PartKey key;
  if (category.part != kNone) {
    key = parts[category.part];
  } else {
    SLUICE_RETURN_IF_ERROR(SingleKey(category, cells, &key));
  }
  if (key.present) batch->keys.push_back(key.keys.own);
  return absl::OkStatus();
}

void CompiledSchema::AppendCross(const CompiledCross& cross, const PartKeys& parts,
                                 Batch* batch) const {
  uint64_t key = cross.seed;
  for (const int part : cross.parts) {
    // A cross of a missing part has no value.
    if (!parts[part].present) return;
    key = CombineHash(key, parts[part].keys.key);
  }
  batch->keys.push_back(cross.rows.empty() ? FoldKey(key, cross.hash_buckets, cross.seed)
                                           : cross.rows.begin + key % cross.hash_buckets);
}

// Without need_label (prediction) label and weight are not used, so they cannot make a line bad.
template <typename Value>
absl::Status CompiledSchema::AppendLabel(const Cells<Value>& cells, bool need_label,
                                         Batch* batch) const {
  float label = 0;
  if (!cells.missing[0]) {
    int value = -1;
    NumberText memory;
    const absl::Status status = f_.label.Apply(TextOf(cells.values[0], &memory), &label, &value);
    if (need_label && !status.ok()) return status;
    if (cells.counts != nullptr && value >= 0) cells.counts->AddLabelValue(value);
  } else if (need_label) {
    return absl::InvalidArgumentError(
        absl::StrCat("label column \"", f_.columns[0], "\" is missing"));
  }
  batch->label.push_back(label);
  return absl::OkStatus();
}

template <typename Value>
absl::Status CompiledSchema::AppendWeight(const Cells<Value>& cells, bool need_label,
                                          Batch* batch) const {
  double weight = 1;
  // LIBSVM may have a weight behind the label, without a name.
  if (!f_.columns[1].empty() || (!cells.missing[1] && HasText(cells.values[1]))) {
    // A negative weight would turn the loss of an example around. Sums hold the others exactly
    // (EvalAccumulator).
    const bool valid = !cells.missing[1] && Number(cells.values[1], &weight) &&
                       (weight == 0 || (weight >= kMinWeight && weight <= kMaxWeight));
    if (!valid && need_label) {
      NumberText memory;
      return absl::InvalidArgumentError(absl::StrCat(
          f_.columns[1].empty() ? "the weight of the label: "
                                : absl::StrCat("weight column \"", f_.columns[1], "\": "),
          cells.missing[1] ? "a missing value" : QuotedCell(TextOf(cells.values[1], &memory)),
          " is no weight; give 0, or a number from 1e-15 to 1e12"));
    }
    if (!valid) weight = 1;
  }
  batch->weight.push_back(static_cast<float>(weight));
  return absl::OkStatus();
}

size_t CompiledSchema::AppendPlainRun(size_t first, const TextCells& cells, Batch* batch) const {
  const size_t end = plain_[first].run_end;
  const size_t keys = batch->keys.size(), offsets = batch->key_offsets.size();
  // Room for a key a slot. Writing through pointers saves a check and a call for each of millions
  // of cells.
  batch->keys.resize(keys + end - first);
  batch->key_offsets.resize(offsets + end - first);
  uint64_t* const base = batch->keys.data();
  uint64_t* key = base + keys;
  uint32_t* offset = batch->key_offsets.data() + offsets;
  for (const PlainSlot* slot = &plain_[first]; slot != plain_.data() + end; ++slot) {
    if (!cells.missing[slot->column]) {
      const uint64_t hash = KeyOfBytes(cells.values[slot->column], slot->seed);
      *key++ = slot->dense ? slot->first_row + hash % slot->hash_buckets
                           : FoldKey(hash, slot->hash_buckets, slot->seed);
    } else if (slot->missing_is_value) {
      *key++ = slot->missing_key;
    }
    *offset++ = static_cast<uint32_t>(key - base);
  }
  batch->keys.resize(key - base);
  return end;
}

template <typename Value>
absl::Status CompiledSchema::AppendAll(const Cells<Value>& cells, bool need_label,
                                       Batch* batch) const {
  SLUICE_RETURN_IF_ERROR(AppendLabel(cells, need_label, batch));
  SLUICE_RETURN_IF_ERROR(AppendWeight(cells, need_label, batch));
  batch->numeric.resize(batch->numeric.size() + f_.numerics.size());
  float* number = batch->numeric.data() + batch->numeric.size() - f_.numerics.size();
  for (const CompiledNumeric& numeric : f_.numerics) {
    SLUICE_RETURN_IF_ERROR(NumberOf(numeric, cells, number++));
  }
  // Parts of crosses first: a slot and several crosses may use the same one.
  PartKeys parts(f_.part_categories.size());
  for (size_t p = 0; p < parts.size(); ++p) {
    SLUICE_RETURN_IF_ERROR(SingleKey(f_.categories[f_.part_categories[p]], cells, &parts[p]));
  }
  for (size_t s = 0; s < f_.slots.size(); ++s) {
    const CompiledSlot& slot = f_.slots[s];
    if constexpr (std::is_same_v<Value, std::string_view>) {
      if (plain_[s].column != kNone) {
        s = AppendPlainRun(s, cells, batch) - 1;
        continue;
      }
    }
    if (slot.cross != kNone) {
      AppendCross(f_.crosses[slot.cross], parts, batch);
    } else {
      SLUICE_RETURN_IF_ERROR(AppendCategory(f_.categories[slot.category], cells, parts, batch));
    }
    batch->key_offsets.push_back(static_cast<uint32_t>(batch->keys.size()));
  }
  // The keys of other slots count once.
  if (weighted_) FillKeyWeights(batch);
  // Offsets of keys have 32 bits.
  if (batch->keys.size() > std::numeric_limits<uint32_t>::max()) {
    return absl::ResourceExhaustedError(
        "more than 2^32 keys in one piece of data; read smaller pieces");
  }
  ++batch->n;
  return absl::OkStatus();
}

const bool* CompiledSchema::FindMissing(const ExampleCells& example) const {
  const Cell* const cells = example.typed;
  bool* const missing = example.scratch;
  for (size_t c = 0; c < f_.columns.size(); ++c) {
    missing[c] = false;
    switch (cells[c].kind()) {
      case Cell::Kind::kMissing:
        missing[c] = true;
        break;
      case Cell::Kind::kText:
        // Formats with a place for the label have it as it is: `missing: "-1"` is about features.
        missing[c] = cells[c].text().empty() ||
                     ((c >= kFirstFeature || f_.absent_labels) && IsAbsent(cells[c].text()));
        break;
      case Cell::Kind::kDouble:
        missing[c] = std::isnan(cells[c].number());
        break;
      default:
        break;
    }
  }
  return missing;
}

absl::Status CompiledSchema::AppendExample(const ExampleCells& cells, bool need_label,
                                           Batch* batch) const {
  if (cells.typed == nullptr)
    return Append(TextCells{cells.text, cells.missing, batch->counts}, need_label, batch);
  return Append(Cells<Cell>{cells.typed, FindMissing(cells), batch->counts}, need_label, batch);
}

template <typename Value>
absl::Status CompiledSchema::Append(const Cells<Value>& cells, bool need_label,
                                    Batch* batch) const {
  const size_t numbers = batch->numeric.size(), offsets = batch->key_offsets.size(),
               keys = batch->keys.size();
  DataCounts* const counts = cells.counts;
  absl::Status status = AppendAll(cells, need_label, batch);
  if (status.ok()) {
    if (counts != nullptr)
      counts->CountExample(cells.missing, f_.columns.size(), batch->label.back() == 1);
  } else {
    // A bad line must leave nothing in the batch.
    if (counts != nullptr) counts->DropLine();
    batch->label.resize(batch->n);
    batch->weight.resize(batch->n);
    batch->numeric.resize(numbers);
    batch->key_offsets.resize(offsets);
    batch->keys.resize(keys);
    batch->key_weights.resize(std::min(batch->key_weights.size(), keys));
  }
  return status;
}

std::vector<absl::Status> CompiledSchema::FindProblems(const ExampleCells& cells) const {
  if (cells.typed == nullptr)
    return ProblemsOf(TextCells{cells.text, cells.missing, /*counts=*/nullptr});
  return ProblemsOf(Cells<Cell>{cells.typed, FindMissing(cells), /*counts=*/nullptr});
}

template <typename Value>
std::vector<absl::Status> CompiledSchema::ProblemsOf(const Cells<Value>& cells) const {
  std::vector<absl::Status> problems;
  const auto note = [&problems](absl::Status status) {
    // A slot may use the same column as a part of a cross.
    if (!status.ok() && std::find(problems.begin(), problems.end(), status) == problems.end())
      problems.push_back(std::move(status));
  };
  Batch scratch;
  note(AppendLabel(cells, /*need_label=*/true, &scratch));
  note(AppendWeight(cells, /*need_label=*/true, &scratch));
  float number = 0;
  for (const CompiledNumeric& numeric : f_.numerics) note(NumberOf(numeric, cells, &number));
  PartKeys parts(f_.part_categories.size());
  for (size_t p = 0; p < parts.size(); ++p)
    note(SingleKey(f_.categories[f_.part_categories[p]], cells, &parts[p]));
  for (const CompiledSlot& slot : f_.slots) {
    if (slot.category != kNone)
      note(AppendCategory(f_.categories[slot.category], cells, parts, &scratch));
  }
  return problems;
}

DataSummary CompiledSchema::Summarize(const DataCounts& counts) const {
  DataSummary summary;
  summary.set_examples(counts.examples());
  summary.set_positive(counts.positive());
  summary.set_repeated_headers(counts.repeated_headers());
  summary.set_label_values_seen(counts.label_values_seen());
  for (const FeatureSource& source : f_.sources) {
    FeatureSummary* feature = summary.add_features();
    if (source.column != kNone) feature->set_missing(counts.MissingIn(source.column));
    const DataCounts::Vocabulary* vocabulary =
        source.category == kNone ? nullptr : counts.OfCategory(source.category);
    if (vocabulary == nullptr) continue;
    feature->set_out_of_vocabulary(vocabulary->out_of_vocabulary);
    feature->set_vocabulary_seen(vocabulary->seen);
  }
  return summary;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const FeatureSchema>> FeatureSchema::Create(const JobConfig& job,
                                                                           const FeatureUse& use) {
  SLUICE_ASSIGN_OR_RETURN(CompiledFeatures features, CompileFeatures(job, use));
  return std::shared_ptr<const FeatureSchema>(
      std::make_shared<CompiledSchema>(std::move(features)));
}

}  // namespace sluice
