// The numbers of an example: of numeric features, and behind buckets and parts of dates.
//
// Thread safety: immutable.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "model/features/date_format.h"
#include "model/features/example_values.h"
#include "model/features/feature_compiler.h"
#include "model/features/value_keys.h"

namespace sluice {

class ExampleNumbers {
 public:
  // `features` outlives it.
  explicit ExampleNumbers(const CompiledFeatures& features) : f_(features) {}

  // Fills numbers [numeric.size()]. INVALID_ARGUMENT names feature, column and cell.
  template <typename Value>
  absl::Status NumbersOf(const CompiledNumeric& numeric, const ExampleValues<Value>& cells,
                         float* numbers) const {
    return numeric.dim == 0 ? NumberOf(numeric, cells, numbers) : VectorOf(numeric, cells, numbers);
  }
  // The numbers [dim] of a vector that is written as text.
  absl::Status VectorOf(const CompiledNumeric& numeric, std::string_view cell,
                        float* numbers) const;
  // The number of a cell, or of the part of its date. `date`: of the feature; null: the cell is the
  // number. Errors as NumbersOf.
  template <typename Value>
  absl::Status RawNumber(const std::string& feature, int column, const DateFormat* date,
                         const ExampleValues<Value>& cells, double* value) const;

  bool Number(std::string_view cell, double* value) const { return f_.Number(cell, value); }
  // False for a number that is not finite too.
  bool Number(const Cell& cell, double* value) const;
  // log and normalization. False where the number is too large for a float.
  bool Normalize(const CompiledNumeric& numeric, double value, float* number) const {
    if (numeric.log) value = log_one_plus_(std::max(value, 0.0));
    value = (value - numeric.offset) * numeric.scale;
    *number = static_cast<float>(value);
    // NaN fails the comparison too.
    return std::abs(value) <= std::numeric_limits<float>::max();
  }

 private:
  template <typename Value>
  absl::Status NumberOf(const CompiledNumeric& numeric, const ExampleValues<Value>& cells,
                        float* number) const;
  template <typename Value>
  absl::Status VectorOf(const CompiledNumeric& numeric, const ExampleValues<Value>& cells,
                        float* numbers) const;
  absl::Status VectorOf(const CompiledNumeric& numeric, const Cell& cell, float* numbers) const;
  // One of them. `value` may be missing.
  template <typename Value>
  absl::Status ElementOf(const CompiledNumeric& numeric, const Value& value, float* number) const;
  template <typename Value>
  absl::Status WrongLength(const CompiledNumeric& numeric, const Value& cell, size_t has) const;
  // Says why a cell is not a number, and which option would read it.
  std::string NumberProblem(std::string_view cell) const;
  std::string NumberProblem(const Cell& cell) const;

  const CompiledFeatures& f_;
  const LogOnePlus log_one_plus_;
};

}  // namespace sluice
