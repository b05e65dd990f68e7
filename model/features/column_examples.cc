#include "model/features/column_examples.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "model/features/cell.h"
#include "model/features/column_block.h"
#include "model/features/column_keys.h"
#include "model/features/value_keys.h"

namespace sluice {
namespace {

using Kind = Cell::Kind;

class Appender final : public ColumnAppender {
 public:
  Appender(const CompiledFeatures& features, const FeatureSchema& schema,
           const ExampleNumbers& numbers, const ExampleKeys& keys)
      : f_(features),
        schema_(schema),
        numbers_of_(numbers),
        block_(features),
        keys_(features, keys, schema.weighted(), &block_) {
    for (const char* text : {"0", "1"}) {
      // What the label rule makes of the usual labels.
      UsualLabel& usual = usual_labels_[text[0] - '0'];
      usual.good = f_.label.Apply(text, &usual.label, &usual.value).ok();
    }
  }

  absl::Status Append(const CellColumn* columns, size_t rows, bool need_label, Batch* batch,
                      const BadRow& bad) override;

 private:
  struct UsualLabel {
    bool good = false;
    float label = 0;
    int value = -1;
  };

  void Labels(const CellColumn& column, bool need_label);
  void Weights(const CellColumn& column, bool need_label);
  void Numeric(const CompiledNumeric& numeric, const CellColumn& column);
  void Vector(const CompiledNumeric& numeric, const CellColumn& column);
  bool Normalize(const CompiledNumeric& numeric, double value, float* number) const {
    return numbers_of_.Normalize(numeric, value, number);
  }
  // Appends the good rows [first, end).
  absl::Status AppendRun(size_t first, size_t end, Batch* batch);
  void Count(size_t first, size_t end, DataCounts* counts);

  const CompiledFeatures& f_;
  const FeatureSchema& schema_;
  const ExampleNumbers& numbers_of_;
  UsualLabel usual_labels_[2];
  ColumnBlock block_;
  ColumnKeys keys_;
  // Of the block.
  std::vector<float> labels_, weights_;  // [rows]
  std::vector<int> label_values_;        // [rows], when it is counted
  std::vector<double> numbers_;          // [rows], of a column
  std::vector<float> numeric_;           // [rows][numerics]
  std::vector<Cell> cells_, cell_values_;
};

void Appender::Labels(const CellColumn& column, bool need_label) {
  const std::vector<uint8_t>& missing = block_.missing(0);
  labels_.assign(block_.rows(), 0);
  if (block_.counting()) label_values_.assign(block_.rows(), -1);
  for (size_t r = 0; r < block_.rows(); ++r) {
    if (missing[r] != 0) {
      if (need_label) block_.Refuse(r);
      continue;
    }
    int value = -1;
    double number = -1;
    if (!column.is_list()) {
      if (column.kind == Kind::kInteger) number = static_cast<double>(column.integers[r]);
      if (column.kind == Kind::kUnsigned) number = static_cast<double>(column.unsigned_integers[r]);
      if (column.kind == Kind::kDouble) number = column.doubles[r];
    }
    // -0.0 equals 0 and is written in another way.
    if (number == 1 || (number == 0 && !std::signbit(number))) {
      const UsualLabel& usual = usual_labels_[number == 1];
      labels_[r] = usual.label;
      value = usual.value;
      if (need_label && !usual.good) block_.Refuse(r);
    } else {
      NumberText memory;
      const Cell cell = CellAt(column, r, &cell_values_);
      const absl::Status status = f_.label.Apply(TextOf(cell, &memory), &labels_[r], &value);
      if (need_label && !status.ok()) block_.Refuse(r);
    }
    if (block_.counting()) label_values_[r] = value;
  }
}

void Appender::Weights(const CellColumn& column, bool need_label) {
  weights_.assign(block_.rows(), 1);
  const std::vector<uint8_t>& missing = block_.missing(1);
  const bool named = !f_.columns[1].empty();
  if (!named && column.kind == Kind::kMissing) return;
  for (size_t r = 0; r < block_.rows(); ++r) {
    if (!named && missing[r] != 0) continue;
    const Cell cell = CellAt(column, r, &cell_values_);
    double weight = 1;
    bool valid = missing[r] == 0;
    if (valid) {
      switch (cell.kind()) {
        case Kind::kText:
          valid = block_.Number(cell.text(), &weight);
          break;
        case Kind::kInteger:
        case Kind::kInstant:
          weight = static_cast<double>(cell.integer());
          break;
        case Kind::kUnsigned:
          weight = static_cast<double>(cell.unsigned_integer());
          break;
        case Kind::kDouble:
          weight = cell.number();
          break;
        default:
          valid = false;
      }
      valid = valid && (weight == 0 || (weight >= kMinWeight && weight <= kMaxWeight));
    }
    if (valid) {
      weights_[r] = static_cast<float>(weight);
    } else if (need_label) {
      block_.Refuse(r);
    }
  }
}

void Appender::Numeric(const CompiledNumeric& numeric, const CellColumn& column) {
  if (numeric.dim > 0) return Vector(numeric, column);
  const std::vector<uint8_t>& missing = block_.missing(numeric.column);
  block_.ReadNumbers(column, numeric.column, numeric.date.get(), &numbers_);
  const size_t stride = f_.numeric_info.size();
  float* to = numeric_.data() + numeric.first;
  for (size_t r = 0; r < block_.rows(); ++r, to += stride) {
    const double value = missing[r] != 0 ? numeric.default_value : numbers_[r];
    block_.Refuse(r, !Normalize(numeric, value, to));
  }
}

void Appender::Vector(const CompiledNumeric& numeric, const CellColumn& column) {
  const std::vector<uint8_t>& missing = block_.missing(numeric.column);
  const size_t stride = f_.numeric_info.size();
  float by_default = 0;
  const bool has_default = Normalize(numeric, numeric.default_value, &by_default);
  // Of the value number `v`; false where it is no number.
  const auto number = [&](size_t v, float* to) {
    double value = 0;
    if (column.absent != nullptr && column.absent[v] != 0)
      return Normalize(numeric, numeric.default_value, to);
    switch (column.kind) {
      case Kind::kText: {
        const std::string_view text = column.text[column.place(v)];
        if (!block_.Number(text, &value)) {
          if (!block_.IsAbsent(text)) return false;
          value = numeric.default_value;
        }
        break;
      }
      case Kind::kInteger:
      case Kind::kInstant:
        value = static_cast<double>(column.integers[v]);
        break;
      case Kind::kUnsigned:
        value = static_cast<double>(column.unsigned_integers[v]);
        break;
      case Kind::kDouble:
        value = column.doubles[v];
        if (std::isnan(value)) value = numeric.default_value;
        break;
      default:
        value = numeric.default_value;
    }
    return std::isfinite(value) && Normalize(numeric, value, to);
  };
  for (size_t r = 0; r < block_.rows(); ++r) {
    float* const to = numeric_.data() + r * stride + numeric.first;
    if (missing[r] != 0) {
      std::fill_n(to, numeric.dim, by_default);
      block_.Refuse(r, !has_default);
    } else if (column.is_list()) {
      const size_t first = column.offsets[r];
      bool good = column.offsets[r + 1] - first == numeric.dim && column.weights == nullptr;
      for (size_t i = 0; i < numeric.dim && good; ++i) good = number(first + i, to + i);
      block_.Refuse(r, !good);
    } else if (column.kind == Kind::kText) {
      block_.Refuse(r, !numbers_of_.VectorOf(numeric, column.text[column.place(r)], to).ok());
    } else {
      block_.Refuse(r, numeric.dim != 1 || !number(r, to));
    }
  }
}

void Appender::Count(size_t first, size_t end, DataCounts* counts) {
  keys_.Count(first, end, counts);
  uint64_t positive = 0;
  for (size_t r = first; r < end; ++r) {
    positive += labels_[r] == 1;
    if (label_values_[r] >= 0) counts->CountLabelValue(static_cast<uint32_t>(label_values_[r]));
  }
  const size_t columns = f_.columns.size();
  for (size_t c = 0; c < columns; ++c) {
    const std::vector<uint8_t>& missing = block_.missing(c);
    counts->CountMissing(
        c, columns,
        static_cast<uint64_t>(std::count(missing.begin() + static_cast<ptrdiff_t>(first),
                                         missing.begin() + static_cast<ptrdiff_t>(end), 1)));
  }
  counts->CountExamples(end - first, positive);
}

absl::Status Appender::AppendRun(size_t first, size_t end, Batch* batch) {
  if (first == end) return absl::OkStatus();
  batch->label.insert(batch->label.end(), labels_.begin() + first, labels_.begin() + end);
  batch->weight.insert(batch->weight.end(), weights_.begin() + first, weights_.begin() + end);
  const size_t numbers = f_.numeric_info.size();
  batch->numeric.insert(batch->numeric.end(), numeric_.begin() + first * numbers,
                        numeric_.begin() + end * numbers);
  keys_.Append(first, end, batch);
  // Offsets of keys have 32 bits.
  if (batch->keys.size() > std::numeric_limits<uint32_t>::max()) {
    return absl::ResourceExhaustedError(
        "more than 2^32 keys in one piece of data; read smaller pieces");
  }
  batch->n += end - first;
  if (block_.counting()) Count(first, end, batch->counts);
  return absl::OkStatus();
}

absl::Status Appender::Append(const CellColumn* columns, size_t rows, bool need_label, Batch* batch,
                              const BadRow& bad) {
  block_.Begin(columns, rows, batch->counts != nullptr);
  Labels(columns[0], need_label);
  Weights(columns[1], need_label);
  numeric_.resize(rows * f_.numeric_info.size());
  for (const CompiledNumeric& numeric : f_.numerics) Numeric(numeric, columns[numeric.column]);
  keys_.Compute(columns);

  size_t first = 0;
  for (size_t r = 0; r < rows; ++r) {
    if (!block_.IsRefused(r)) continue;
    SLUICE_RETURN_IF_ERROR(AppendRun(first, r, batch));
    first = r + 1;
    // As a single example, which names what is wrong.
    cells_.clear();
    std::vector<std::vector<Cell>> lists(f_.columns.size());
    for (size_t c = 0; c < f_.columns.size(); ++c)
      cells_.push_back(CellAt(columns[c], r, &lists[c]));
    const auto scratch = std::make_unique<bool[]>(f_.columns.size());
    ExampleCells example;
    example.typed = cells_.data();
    example.scratch = scratch.get();
    const absl::Status status = schema_.AppendExample(example, need_label, batch);
    if (absl::IsResourceExhausted(status)) return status;
    if (!status.ok()) bad(r, status);
  }
  return AppendRun(first, rows, batch);
}

}  // namespace

std::unique_ptr<ColumnAppender> MakeColumnAppender(const CompiledFeatures& features,
                                                   const FeatureSchema& schema,
                                                   const ExampleNumbers& numbers,
                                                   const ExampleKeys& keys) {
  return std::make_unique<Appender>(features, schema, numbers, keys);
}

}  // namespace sluice
