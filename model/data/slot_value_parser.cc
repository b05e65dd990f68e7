#include "model/data/slot_value_parser.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "model/features/cell.h"

namespace sluice {

SlotValueParser::SlotValueParser(const Slots& slots, const std::vector<int>& name_of_column,
                                 const std::vector<std::string>&)
    : LineParser(name_of_column.size()) {
  typed_.resize(name_of_column.size());
  int name = 0;
  for (const Slot& slot : slots) {
    DeclaredSlot declared;
    declared.name = slot.name();
    declared.digits = slot.type() == Slot::UINT64;
    declared.dim = slot.dim();
    for (uint32_t i = 0; i < std::max(1u, slot.dim()); ++i, ++name) {
      const auto column = std::find(name_of_column.begin(), name_of_column.end(), name);
      declared.columns.push_back(
          column == name_of_column.end() ? -1 : static_cast<int>(column - name_of_column.begin()));
    }
    slot_of_name_.emplace(slot.name(), slots_.size());
    slots_.push_back(std::move(declared));
  }
}

absl::Status SlotValueParser::TakeWord(std::string_view word) {
  // The last one: a name may hold a colon, and a value cannot.
  const size_t colon = word.rfind(':');
  if (colon == std::string_view::npos || colon == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        QuotedCell(word), " is not slot:value; for text with counts set data.format: MULTI_SLOT"));
  }
  const auto found = slot_of_name_.find(absl::string_view(word.data(), colon));
  if (found == slot_of_name_.end()) return absl::OkStatus();
  DeclaredSlot& slot = slots_[found->second];
  std::string_view value = word.substr(colon + 1);
  if (slot.digits) {
    // Paddle reads a number, so 05 and 5 are one.
    while (value.size() > 1 && value.front() == '0') value.remove_prefix(1);
    uint64_t key;
    if (value.empty() || value.front() == '-' || !ParseKey(value, &key)) {
      return absl::InvalidArgumentError(
          absl::StrCat("slot \"", slot.name, "\": ", QuotedCell(value),
                       " is not of type UINT64 (digits, at most ", UINT64_MAX, ")"));
    }
  }
  slot.values.push_back(Cell::Text(value));
  return absl::OkStatus();
}

absl::Status SlotValueParser::Close(const DeclaredSlot& slot) {
  const size_t count = slot.values.size();
  if (count == 0) return absl::OkStatus();  // missing
  if (slot.dim > 0 && count != slot.dim) {
    return absl::InvalidArgumentError(absl::StrCat("slot \"", slot.name, "\" has ", count,
                                                   count == 1 ? " value" : " values",
                                                   " but its dim is ", slot.dim));
  }
  if (slot.dim == 0) {
    if (slot.columns[0] < 0) return absl::OkStatus();
    // One value is also a number or a label.
    typed_[slot.columns[0]] = count == 1 ? slot.values[0] : Cell::List(slot.values.data(), count);
    return absl::OkStatus();
  }
  for (size_t i = 0; i < count; ++i) {
    if (slot.columns[i] >= 0) typed_[slot.columns[i]] = slot.values[i];
  }
  return absl::OkStatus();
}

absl::Status SlotValueParser::Parse(char* line, size_t size) {
  std::fill(typed_.begin(), typed_.end(), Cell());
  for (DeclaredSlot& slot : slots_) slot.values.clear();
  std::string_view rest(line, size);
  while (true) {
    rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
    if (rest.empty()) break;
    const std::string_view word = rest.substr(0, rest.find_first_of(" \t"));
    rest.remove_prefix(word.size());
    SLUICE_RETURN_IF_ERROR(TakeWord(word));
  }
  for (const DeclaredSlot& slot : slots_) SLUICE_RETURN_IF_ERROR(Close(slot));
  return absl::OkStatus();
}

}  // namespace sluice
