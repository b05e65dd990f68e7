// The columns of a table in Arrow's memory format: says which can be read, and how their values lie
// in memory.
//
// Thread safety: pure functions.
//
// Source: Apache Arrow, "The Arrow C data interface".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/arrow/arrow_c_data.h"

namespace sluice {

// The kinds of values, whatever their width.
enum class ArrowClass { kNothing, kNumber, kText, kDate, kUnreadable };

// A column of a table, or a field in its structs.
struct ArrowPath {
  std::string name;           // "a.b"
  std::vector<size_t> steps;  // the top-level column, then the fields
  ArrowClass values = ArrowClass::kNothing;
  bool list = false, weighted = false;
  std::string type;  // such as "list<int64>"
};

// All columns of a table, in its order; the fields of structs in place of the structs.
// INVALID_ARGUMENT: no schema of a table.
absl::StatusOr<std::vector<ArrowPath>> ArrowPathsOf(const ArrowSchema& schema);

// About how many bytes of memory the buffers of `array` take, which has the type `schema`.
// REQUIRES: `array` is sound.
uint64_t ArrowBytes(const ArrowSchema& schema, const ArrowArray& array);

// ---- For readers of values.

// How a value lies in memory.
enum class ArrowStore : uint8_t {
  kNone,  // not read
  kNull,
  kBool,
  kInt8,
  kUint8,
  kInt16,
  kUint16,
  kInt32,
  kUint32,
  kInt64,
  kUint64,
  kHalf,
  kFloat,
  kDouble,
  kText,
  kLargeText,
  kTextView,
  kFixedText,
  kDays,
  kTicks,  // `per_second` of them
  kDecimal
};

// The type of the values of a column.
struct ArrowValueType {
  ArrowStore store = ArrowStore::kNone;
  int64_t per_second = 1;  // kTicks
  size_t width = 0;        // bytes: kFixedText, kDecimal
  int scale = 0;           // kDecimal
};

// The type of the indices, if the column has a dictionary. The column has no children.
ArrowValueType PlainArrowType(const ArrowSchema& schema);
// The type of the values, which are in the dictionary if there is one.
ArrowValueType ArrowTypeOf(const ArrowSchema& schema);
inline bool IsArrowText(ArrowStore store) {
  return store >= ArrowStore::kText && store <= ArrowStore::kFixedText;
}

// The list that a column is.
struct ArrowListType {
  enum class Form { kNone, kList, kLargeList, kFixedList };
  Form form = Form::kNone;
  size_t fixed = 0;
  bool weighted = false;  // its values are pairs of a value and a weight
};

ArrowListType ArrowListOf(const ArrowSchema& schema);

}  // namespace sluice
