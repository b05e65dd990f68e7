#include "model/features/example_keys.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "common/base/status_macros.h"
#include "model/features/cell.h"

namespace sluice {
namespace {

constexpr char kNegativeWeight[] = "has a weight below 0, with which pooling MEAN has no meaning";
constexpr char kUnusedWeights[] =
    "has weights for its values: set weight_delimiter, such as \":\", to use them";

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

}  // namespace

ExampleKeys::ExampleKeys(const CompiledFeatures& features, const ExampleNumbers& numbers,
                         bool weighted)
    : f_(features), numbers_(numbers), weighted_(weighted) {
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
  // From the back, so that each slot knows where the run of plain slots that it begins ends.
  for (size_t s = plain_.size(); s-- > 0;) {
    const bool goes_on = s + 1 < plain_.size() && plain_[s + 1].column != kNone;
    plain_[s].run_end = goes_on ? plain_[s + 1].run_end : s + 1;
  }
}

template <typename Value>
absl::Status ExampleKeys::KeysOfCell(const CompiledCategory& category, const Value& value,
                                     DataCounts* counts, ValueKeys* keys) const {
  NumberText memory;
  std::string_view text;
  if (!CategoryText(value, &memory, &text)) {
    return CellError(category.feature, f_.columns[category.column], value,
                     IsInstant(value)
                         ? "seconds since 1970 are a date, and no category; set date_part, or make "
                           "the feature numeric"
                         : "is a fraction, or too large to be exact, and no category; give "
                           "categories as text or whole numbers, or make the feature numeric");
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
absl::Status ExampleKeys::SingleKey(const CompiledCategory& category,
                                    const ExampleValues<Value>& cells, PartKey* key) const {
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
      numbers_.RawNumber(category.feature, category.column, category.date.get(), cells, &value));
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

template <typename Value>
absl::Status ExampleKeys::AppendValue(const CompiledCategory& category, const Value& value,
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

absl::Status ExampleKeys::AppendWritten(const CompiledCategory& category, std::string_view value,
                                        DataCounts* counts, Batch* batch) const {
  double weight = 1;
  if (category.weight_delimiter != 0) {
    // The last one, since a value may hold the delimiter and a weight cannot.
    const size_t at = value.rfind(category.weight_delimiter);
    if (at != std::string_view::npos) {
      const std::string_view written = Trimmed(value.substr(at + 1), f_.trim_parts);
      if (!numbers_.Number(written, &weight) ||
          std::abs(weight) > std::numeric_limits<float>::max()) {
        return CellError(category.feature, f_.columns[category.column], value,
                         "has a weight that is not a finite number");
      }
      if (category.mean && weight < 0) {
        return CellError(category.feature, f_.columns[category.column], value, kNegativeWeight);
      }
      value = Trimmed(value.substr(0, at), f_.trim_parts);
    }
  }
  if (f_.IsAbsent(value)) return absl::OkStatus();
  return AppendValue(category, value, weight, counts, batch);
}

absl::Status ExampleKeys::AppendValues(const CompiledCategory& category, const Cell& cell,
                                       DataCounts* counts, Batch* batch) const {
  if (cell.kind() == Cell::Kind::kText) return AppendValues(category, cell.text(), counts, batch);
  const Cell* const values = IsList(cell) ? cell.values() : &cell;
  const size_t size = IsList(cell) ? cell.size() : 1;
  const size_t before = batch->keys.size();
  if (IsList(cell) && cell.weights() != nullptr && !category.weighted)
    return CellError(category.feature, f_.columns[category.column], cell, kUnusedWeights);
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
    if (value.kind() == Cell::Kind::kText && f_.IsAbsent(value.text())) continue;
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

absl::Status ExampleKeys::AppendValues(const CompiledCategory& category, std::string_view cell,
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
absl::Status ExampleKeys::AppendCategory(const CompiledCategory& category,
                                         const ExampleValues<Value>& cells, const PartKeys& parts,
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

void ExampleKeys::AppendCross(const CompiledCross& cross, const PartKeys& parts,
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

size_t ExampleKeys::AppendPlainRun(size_t first, const ExampleText& cells, Batch* batch) const {
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

// For both kinds of cells.
template absl::Status ExampleKeys::SingleKey(const CompiledCategory&, const ExampleText&,
                                             PartKey*) const;
template absl::Status ExampleKeys::SingleKey(const CompiledCategory&, const ExampleValues<Cell>&,
                                             PartKey*) const;
template absl::Status ExampleKeys::AppendCategory(const CompiledCategory&, const ExampleText&,
                                                  const PartKeys&, Batch*) const;
template absl::Status ExampleKeys::AppendCategory(const CompiledCategory&,
                                                  const ExampleValues<Cell>&, const PartKeys&,
                                                  Batch*) const;

}  // namespace sluice
