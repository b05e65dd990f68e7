#include "model/data/arrow_columns.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "model/data/arrow_values.h"

namespace sluice {
namespace {

// Any id that no dictionary has had.
uint64_t NextDictionaryId() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

// Values that may have a dictionary.
class CodedReader {
 public:
  explicit CodedReader(const ArrowSchema& schema)
      : type_(ArrowTypeOf(schema)),
        coded_(schema.dictionary != nullptr),
        values_(type_),
        codes_(coded_ ? PlainArrowType(schema) : ArrowValueType()),
        code_store_(coded_ ? PlainArrowType(schema).store : ArrowStore::kNone) {}

  bool coded() const { return coded_; }

  // Fills all of *cells but for lists and absent values. `dictionary`: of the batch. `absent` holds
  // if `nulls`; values of a dictionary may be null too.
  template <typename Dictionary>
  absl::Status Read(const ArrowArray& array, size_t first, size_t n, std::vector<uint8_t>* absent,
                    bool* nulls, Dictionary* dictionary, CellColumn* cells) {
    if (!coded_) return values_.Read(array, first, n, cells);
    if (array.dictionary == nullptr) return ArrowContradiction("a dictionary is not there");
    const size_t size = static_cast<size_t>(array.dictionary->length);
    if (size > static_cast<size_t>(INT32_MAX))
      return ArrowContradiction("a dictionary is too large");
    const bool text = IsArrowText(type_.store);
    const bool plain = text && code_store_ == ArrowStore::kInt32;
    bool outside = false;
    if (plain) {
      // The usual codes are used where they are.
      const int32_t* const codes = ArrowBuffer<int32_t>(array, 1) + first;
      for (size_t i = 0; i < n; ++i) {
        outside |= static_cast<uint32_t>(codes[i]) >= size && !(*nulls && (*absent)[i] != 0);
      }
      cells->codes = codes;
    } else {
      CellColumn of_codes;
      SLUICE_RETURN_IF_ERROR(codes_.Read(array, first, n, &of_codes));
      places_.resize(n);
      for (size_t i = 0; i < n; ++i) {
        const uint64_t code = of_codes.kind == Cell::Kind::kInteger
                                  ? static_cast<uint64_t>(of_codes.integers[i])
                                  : of_codes.unsigned_integers[i];
        const bool null = *nulls && (*absent)[i] != 0;
        outside |= !null && code >= size;
        places_[i] = null ? 0 : static_cast<int32_t>(code);
      }
      cells->codes = places_.data();
    }
    if (outside) return ArrowContradiction("a code is in no dictionary");
    if (!text) {
      cells->codes = nullptr;
      return Gather(*array.dictionary, n, absent, nulls, cells);
    }
    if (dictionary->id == 0) SLUICE_RETURN_IF_ERROR(ReadDictionary(*array.dictionary, dictionary));
    cells->kind = Cell::Kind::kText;
    cells->text = dictionary->text.data();
    cells->dictionary_size = dictionary->text.size();
    cells->dictionary_rows = static_cast<size_t>(array.length);
    cells->dictionary_id = dictionary->id;
    return absl::OkStatus();
  }

 private:
  // The texts of all values of a dictionary.
  template <typename Dictionary>
  absl::Status ReadDictionary(const ArrowArray& array, Dictionary* dictionary) {
    const size_t size = static_cast<size_t>(array.length),
                 first = static_cast<size_t>(array.offset);
    CellColumn values;
    SLUICE_RETURN_IF_ERROR(values_.Read(array, first, size, &values));
    std::vector<uint8_t> absent;
    const bool nulls = MarkArrowNulls(array, first, size, &absent);
    dictionary->text.assign(values.text, values.text + size);
    for (size_t v = 0; v < size && nulls; ++v) {
      if (absent[v] != 0) dictionary->text[v] = {};  // which is missing
    }
    dictionary->id = NextDictionaryId();
    return absl::OkStatus();
  }

  // The values themselves, which places_ name.
  absl::Status Gather(const ArrowArray& array, size_t n, std::vector<uint8_t>* absent, bool* nulls,
                      CellColumn* cells) {
    const size_t size = static_cast<size_t>(array.length),
                 first = static_cast<size_t>(array.offset);
    SLUICE_RETURN_IF_ERROR(values_.Read(array, first, size, cells));
    std::vector<uint8_t> absent_values;
    if (MarkArrowNulls(array, first, size, &absent_values)) {
      if (!std::exchange(*nulls, true)) absent->assign(n, 0);
      for (size_t i = 0; i < n; ++i) {
        if ((*absent)[i] == 0) (*absent)[i] = absent_values[static_cast<size_t>(places_[i])];
      }
    }
    const auto gather = [&](const auto* from, auto* to) {
      to->resize(n);
      for (size_t i = 0; i < n && size > 0; ++i) (*to)[i] = from[places_[i]];
      return to->data();
    };
    if (cells->integers != nullptr) cells->integers = gather(cells->integers, &integers_);
    if (cells->unsigned_integers != nullptr)
      cells->unsigned_integers = gather(cells->unsigned_integers, &unsigned_);
    if (cells->doubles != nullptr) cells->doubles = gather(cells->doubles, &doubles_);
    if (cells->text != nullptr) cells->text = gather(cells->text, &texts_);
    return absl::OkStatus();
  }

  const ArrowValueType type_;
  const bool coded_;
  ArrowValues values_, codes_;
  const ArrowStore code_store_;
  std::vector<int32_t> places_;
  std::vector<int64_t> integers_;
  std::vector<uint64_t> unsigned_;
  std::vector<double> doubles_;
  std::vector<std::string_view> texts_;
};

}  // namespace

// One column of the job.
class ArrowColumns::Column {
 public:
  Column(const Source& source, const ArrowSchema* schema) : source_(source) {
    if (source_.constant) {
      texts_ = {source_.text};
      constant_id_ = NextDictionaryId();
    }
    if (schema == nullptr) return;
    list_ = ArrowListOf(*schema);
    if (list_.form == ArrowListType::Form::kNone) {
      values_ = std::make_unique<CodedReader>(*schema);
    } else if (!list_.weighted) {
      values_ = std::make_unique<CodedReader>(*schema->children[0]);
    } else {
      values_ = std::make_unique<CodedReader>(*schema->children[0]->children[0]);
      weights_of_ = ArrowTypeOf(*schema->children[0]->children[1]);
    }
    weight_reader_ = std::make_unique<ArrowValues>(weights_of_);
  }

  absl::Status Read(const ArrowArray& batch, ArrowBatch::Dictionary* dictionary, size_t first,
                    size_t rows, CellColumn* cells) {
    *cells = CellColumn();
    if (source_.constant) {
      codes_.assign(rows, 0);
      cells->kind = Cell::Kind::kText;
      cells->text = texts_.data();
      cells->codes = codes_.data();
      cells->dictionary_size = 1;
      cells->dictionary_rows = rows;
      cells->dictionary_id = constant_id_;
      return absl::OkStatus();
    }
    if (source_.steps.empty()) return absl::OkStatus();  // no row has a value
    const ArrowArray* array = &batch;
    size_t at = first + static_cast<size_t>(batch.offset);
    absent_.clear();
    bool nulls = MarkArrowNulls(*array, at, rows, &absent_);
    for (const size_t step : source_.steps) {
      if (static_cast<int64_t>(step) >= array->n_children)
        return ArrowContradiction("a column is gone");
      array = array->children[step];
      at += static_cast<size_t>(array->offset);
      // A field of a null struct is null.
      nulls |= MarkArrowNulls(*array, at, rows, &absent_);
    }
    if (list_.form != ArrowListType::Form::kNone)
      return ReadList(*array, at, rows, nulls, dictionary, cells);
    SLUICE_RETURN_IF_ERROR(values_->Read(*array, at, rows, &absent_, &nulls, dictionary, cells));
    if (nulls) cells->absent = absent_.data();
    return absl::OkStatus();
  }

 private:
  absl::Status ReadList(const ArrowArray& array, size_t at, size_t rows, bool nulls,
                        ArrowBatch::Dictionary* dictionary, CellColumn* cells) {
    if (array.n_children != 1) return ArrowContradiction("a list has no values");
    int64_t first = 0;
    offsets_.assign(rows + 1, 0);
    const auto take = [&](const auto* offsets) {
      first = offsets[0];
      bool falls = first < 0;
      for (size_t r = 0; r <= rows; ++r) {
        const int64_t place = offsets[r] - first;
        falls |= place > UINT32_MAX || (r > 0 && offsets[r] < offsets[r - 1]);
        offsets_[r] = static_cast<uint32_t>(place);
      }
      return !falls;
    };
    if (list_.form == ArrowListType::Form::kFixedList) {
      first = static_cast<int64_t>(at * list_.fixed);
      if (rows * list_.fixed > UINT32_MAX) return ArrowContradiction("offsets of lists fall");
      for (size_t r = 0; r <= rows; ++r) offsets_[r] = static_cast<uint32_t>(r * list_.fixed);
    } else if (!(list_.form == ArrowListType::Form::kList
                     ? take(ArrowBuffer<int32_t>(array, 1) + at)
                     : take(ArrowBuffer<int64_t>(array, 1) + at))) {
      return ArrowContradiction("offsets of lists fall");
    }
    const size_t n = offsets_[rows];
    const ArrowArray* values = array.children[0];
    size_t begin = static_cast<size_t>(first) + static_cast<size_t>(values->offset);
    if (begin + n > static_cast<size_t>(values->offset + values->length))
      return ArrowContradiction("a list goes on behind its values");
    absent_values_.clear();
    bool absent = false;
    if (list_.weighted) {
      if (values->n_children != 2) return ArrowContradiction("a pair has no two parts");
      absent = MarkArrowNulls(*values, begin, n, &absent_values_);
      const ArrowArray& weights = *values->children[1];
      SLUICE_RETURN_IF_ERROR(ReadWeights(weights, begin + static_cast<size_t>(weights.offset), n));
      values = values->children[0];
      begin += static_cast<size_t>(values->offset);
    }
    absent |= MarkArrowNulls(*values, begin, n, &absent_values_);
    SLUICE_RETURN_IF_ERROR(
        values_->Read(*values, begin, n, &absent_values_, &absent, dictionary, cells));
    if (absent) cells->absent = absent_values_.data();
    if (nulls) cells->null_lists = absent_.data();
    if (list_.weighted) cells->weights = weights_.data();
    cells->offsets = offsets_.data();
    return absl::OkStatus();
  }

  // A null weight is no number.
  absl::Status ReadWeights(const ArrowArray& array, size_t first, size_t n) {
    CellColumn cells;
    SLUICE_RETURN_IF_ERROR(weight_reader_->Read(array, first, n, &cells));
    std::vector<uint8_t> absent;
    const bool nulls = MarkArrowNulls(array, first, n, &absent);
    weights_.resize(n);
    for (size_t i = 0; i < n; ++i) {
      double weight = std::numeric_limits<double>::quiet_NaN();
      if (!nulls || absent[i] == 0) {
        if (cells.kind == Cell::Kind::kInteger) weight = static_cast<double>(cells.integers[i]);
        if (cells.kind == Cell::Kind::kUnsigned)
          weight = static_cast<double>(cells.unsigned_integers[i]);
        if (cells.kind == Cell::Kind::kDouble) weight = cells.doubles[i];
        if (cells.kind == Cell::Kind::kText &&
            !absl::SimpleAtod({cells.text[i].data(), cells.text[i].size()}, &weight))
          weight = std::numeric_limits<double>::quiet_NaN();
      }
      weights_[i] = weight;
    }
    return absl::OkStatus();
  }

  const Source source_;
  ArrowListType list_;
  ArrowValueType weights_of_;
  std::unique_ptr<CodedReader> values_;
  std::unique_ptr<ArrowValues> weight_reader_;
  std::vector<std::string_view> texts_;  // of a constant, with its code for each row
  std::vector<int32_t> codes_;
  uint64_t constant_id_ = 0;
  std::vector<uint8_t> absent_, absent_values_;
  std::vector<uint32_t> offsets_;
  std::vector<double> weights_;
};

ArrowColumns::~ArrowColumns() = default;

absl::StatusOr<std::unique_ptr<ArrowColumns>> ArrowColumns::Create(const ArrowSchema& schema,
                                                                   std::vector<Source> sources) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<ArrowPath> paths, ArrowPathsOf(schema));
  std::unique_ptr<ArrowColumns> columns(new ArrowColumns);
  for (const Source& source : sources) {
    const ArrowSchema* of_column = source.steps.empty() ? nullptr : &schema;
    if (of_column != nullptr) {
      const auto path = std::find_if(paths.begin(), paths.end(),
                                     [&](const ArrowPath& p) { return p.steps == source.steps; });
      if (path == paths.end()) return absl::InternalError("a column of the data is not there");
      if (path->values == ArrowClass::kUnreadable) {
        return absl::UnimplementedError(
            absl::StrCat("column \"", path->name, "\" has the type ", path->type,
                         ", which is not read; write it as a number, text, a date, a list of them, "
                         "or a map to numbers"));
      }
    }
    for (const size_t step : source.steps) of_column = of_column->children[step];
    columns->columns_.push_back(std::make_unique<Column>(source, of_column));
  }
  columns->cells_.resize(sources.size());
  return columns;
}

absl::StatusOr<absl::Span<const CellColumn>> ArrowColumns::Read(ArrowBatch* batch, size_t first,
                                                                size_t rows) {
  if (first + rows > batch->rows()) return ArrowContradiction("rows are missing");
  batch->dictionaries_.resize(columns_.size());
  for (size_t c = 0; c < columns_.size(); ++c) {
    SLUICE_RETURN_IF_ERROR(
        columns_[c]->Read(*batch->array_, &batch->dictionaries_[c], first, rows, &cells_[c]));
  }
  return absl::MakeConstSpan(cells_);
}

}  // namespace sluice
