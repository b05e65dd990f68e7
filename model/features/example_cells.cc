#include "model/features/example_cells.h"

#include <charconv>

#include "model/features/cell_column.h"

namespace sluice {
namespace {

template <typename Number>
std::string_view Write(Number value, NumberText* memory) {
  const auto end = std::to_chars(memory->bytes, memory->bytes + sizeof memory->bytes, value).ptr;
  return {memory->bytes, static_cast<size_t>(end - memory->bytes)};
}

Cell ValueAt(const CellColumn& column, size_t value) {
  if (column.absent != nullptr && column.absent[value] != 0) return Cell();
  switch (column.kind) {
    case Cell::Kind::kText:
      return Cell::Text(column.text[column.place(value)]);
    case Cell::Kind::kInteger:
      return Cell::Integer(column.integers[value]);
    case Cell::Kind::kUnsigned:
      return Cell::Unsigned(column.unsigned_integers[value]);
    case Cell::Kind::kDouble:
      return Cell::Double(column.doubles[value]);
    case Cell::Kind::kInstant:
      return Cell::Instant(column.integers[value]);
    default:
      return Cell();
  }
}

}  // namespace

std::string_view TextOf(const Cell& cell, NumberText* memory) {
  switch (cell.kind()) {
    case Cell::Kind::kText:
      return cell.text();
    case Cell::Kind::kInteger:
    case Cell::Kind::kInstant:
      return Write(cell.integer(), memory);
    case Cell::Kind::kUnsigned:
    case Cell::Kind::kBool:
      return Write(cell.unsigned_integer(), memory);
    case Cell::Kind::kDouble:
      return Write(cell.number(), memory);
    case Cell::Kind::kList:
      return "[...]";
    default:
      return "";
  }
}

Cell CellAt(const CellColumn& column, size_t row, std::vector<Cell>* values) {
  if (!column.is_list()) return ValueAt(column, row);
  if (column.null_lists != nullptr && column.null_lists[row] != 0) return Cell();
  values->clear();
  const size_t first = column.offsets[row], end = column.offsets[row + 1];
  for (size_t v = first; v < end; ++v) values->push_back(ValueAt(column, v));
  return Cell::List(values->data(), values->size(),
                    column.weights == nullptr ? nullptr : column.weights + first);
}

}  // namespace sluice
