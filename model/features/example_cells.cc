#include "model/features/example_cells.h"

#include <charconv>

namespace sluice {
namespace {

template <typename Number>
std::string_view Write(Number value, NumberText* memory) {
  const auto end = std::to_chars(memory->bytes, memory->bytes + sizeof memory->bytes, value).ptr;
  return {memory->bytes, static_cast<size_t>(end - memory->bytes)};
}

}  // namespace

std::string_view TextOf(const Cell& cell, NumberText* memory) {
  switch (cell.kind()) {
    case Cell::Kind::kText:
      return cell.text();
    case Cell::Kind::kInteger:
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

}  // namespace sluice
