#include "model/features/column_block.h"

#include <cmath>

namespace sluice {
namespace {

using Kind = Cell::Kind;

// In columns(): label and weight come before the features.
constexpr size_t kColumnsBeforeFeatures = 2;

}  // namespace

void ColumnBlock::Begin(const CellColumn* columns, size_t rows, bool counting) {
  rows_ = rows;
  counting_ = counting;
  bad_.assign(rows, 0);
  for (size_t c = 0; c < missing_.size(); ++c) FindMissing(c, columns[c]);
}

void ColumnBlock::FindMissing(size_t c, const CellColumn& column) {
  std::vector<uint8_t>& missing = missing_[c];
  if (column.kind == Kind::kMissing && !column.is_list()) {
    missing.assign(rows_, 1);
    return;
  }
  const uint8_t* const absent = column.is_list() ? column.null_lists : column.absent;
  if (absent == nullptr) {
    missing.assign(rows_, 0);
  } else {
    missing.assign(absent, absent + rows_);
  }
  if (column.is_list()) return;
  if (column.kind == Kind::kDouble) {
    for (size_t r = 0; r < rows_; ++r) missing[r] |= std::isnan(column.doubles[r]);
  }
  if (column.kind != Kind::kText) return;
  const bool words = c >= kColumnsBeforeFeatures || f_.absent_labels;
  const auto is_absent = [&](std::string_view text) {
    return words ? IsAbsent(text) : text.empty();
  };
  if (column.codes == nullptr) {
    for (size_t r = 0; r < rows_; ++r) {
      if (missing[r] == 0) missing[r] = is_absent(column.text[r]);
    }
    return;
  }
  DictionaryAbsent& dictionary = dictionary_absent_[c];
  if (dictionary.id != column.dictionary_id) {
    dictionary.id = column.dictionary_id;
    dictionary.absent.resize(column.dictionary_size);
    dictionary.any = false;
    for (size_t v = 0; v < column.dictionary_size; ++v)
      dictionary.any |= dictionary.absent[v] = is_absent(column.text[v]);
  }
  for (size_t r = 0; r < rows_ && dictionary.any; ++r) {
    if (missing[r] == 0) missing[r] = dictionary.absent[column.codes[r]];
  }
}

void ColumnBlock::ReadNumbers(const CellColumn& column, size_t c, const DateFormat* date,
                              std::vector<double>* to) {
  const std::vector<uint8_t>& missing = missing_[c];
  to->assign(rows_, 0);
  double* const numbers = to->data();
  if (column.is_list()) {
    for (size_t r = 0; r < rows_; ++r) bad_[r] |= missing[r] == 0;
    return;
  }
  if (column.kind == Kind::kMissing) return;
  if (date != nullptr && column.kind != Kind::kInstant) {
    for (size_t r = 0; r < rows_; ++r) {
      if (missing[r] != 0) continue;
      NumberText memory;
      int part = 0;
      const Cell cell = CellAt(column, r, &cell_values_);
      if (!date->Parse(TextOf(cell, &memory), &part)) bad_[r] = 1;
      numbers[r] = part;
    }
    return;
  }
  switch (column.kind) {
    case Kind::kText:
      for (size_t r = 0; r < rows_; ++r) {
        if (missing[r] == 0 && !Number(column.text[column.place(r)], &numbers[r])) bad_[r] = 1;
      }
      break;
    case Kind::kInteger:
      for (size_t r = 0; r < rows_; ++r) numbers[r] = static_cast<double>(column.integers[r]);
      break;
    case Kind::kInstant:
      for (size_t r = 0; r < rows_; ++r) {
        numbers[r] = date == nullptr ? static_cast<double>(column.integers[r])
                     : missing[r] == 0
                         ? static_cast<double>(date->PartOfInstant(column.integers[r]))
                         : 0.0;
      }
      break;
    case Kind::kUnsigned:
      for (size_t r = 0; r < rows_; ++r)
        numbers[r] = static_cast<double>(column.unsigned_integers[r]);
      break;
    default:
      std::copy(column.doubles, column.doubles + rows_, numbers);
      for (size_t r = 0; r < rows_; ++r) bad_[r] |= missing[r] == 0 && !std::isfinite(numbers[r]);
  }
}

}  // namespace sluice
