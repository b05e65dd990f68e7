#include "model/data/multi_slot_parser.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "model/features/cell.h"

namespace sluice {
namespace {

// Takes the next word, up to a blank, off *rest; empty at the end of the line.
std::string_view TakeWord(std::string_view* rest) {
  rest->remove_prefix(std::min(rest->find_first_not_of(' '), rest->size()));
  const std::string_view word = rest->substr(0, rest->find(' '));
  rest->remove_prefix(word.size());
  return word;
}

bool AllDigits(std::string_view word) {
  return std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// `digits` has no leading zeros.
bool FitsUint64(std::string_view digits) {
  constexpr std::string_view kMost = "18446744073709551615";
  return digits.size() < kMost.size() || (digits.size() == kMost.size() && digits <= kMost);
}

}  // namespace

MultiSlotParser::MultiSlotParser(const Slots& slots, const std::vector<int>& name_of_column,
                                 std::vector<std::string> missing)
    : LineParser(name_of_column.size()), absent_(std::move(missing)) {
  int name = 0;
  for (const Slot& slot : slots) {
    CompiledSlot compiled;
    compiled.name = slot.name();
    compiled.digits = slot.type() == Slot::UINT64;
    compiled.dim = slot.dim();
    // A slot of dim d has d columns. One of any length has a single column for all its values.
    for (uint32_t i = 0; i < std::max(1u, slot.dim()); ++i, ++name) {
      const auto column = std::find(name_of_column.begin(), name_of_column.end(), name);
      compiled.columns.push_back(
          column == name_of_column.end() ? -1 : static_cast<int>(column - name_of_column.begin()));
    }
    slots_.push_back(std::move(compiled));
  }
}

absl::Status MultiSlotParser::ParseSlot(const CompiledSlot& slot, std::string_view* rest) {
  const std::string_view word = TakeWord(rest);
  if (word.empty())
    return absl::InvalidArgumentError(
        absl::StrCat("the line ends before the slot \"", slot.name, "\""));
  uint32_t count = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), count);
  if (error != std::errc() || end != word.data() + word.size()) {
    if (word.find(':') != std::string_view::npos) {
      return absl::InvalidArgumentError(absl::StrCat(
          QuotedCell(word),
          " is not a count of values; it looks like PaddleRec's slot:value text: set data.format: "
          "SLOT_VALUE"));
    }
    return absl::InvalidArgumentError(
        absl::StrCat("slot \"", slot.name, "\": ", QuotedCell(word), " is not a count of values"));
  }
  // The columns of the slot are fixed, so another count would shift all values after it.
  if (slot.dim > 0 && count != slot.dim) {
    return absl::InvalidArgumentError(
        absl::StrCat("slot \"", slot.name, "\" has ", count, " values but its dim is ", slot.dim));
  }
  const char* first = nullptr;
  for (uint32_t i = 0; i < count; ++i) {
    std::string_view value = TakeWord(rest);
    if (value.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "slot \"", slot.name, "\": the line ends after ", i, " of its ", count, " values"));
    }
    // Only the form is checked: the value stays text, which is hashed.
    if (slot.digits && !AllDigits(value)) {
      return absl::InvalidArgumentError(
          absl::StrCat("slot \"", slot.name, "\": ", QuotedCell(value), " is not of type UINT64"));
    }
    // Paddle reads a number, so 05 and 5 are one. The zeros become blanks, which separate the
    // values of a cell anyway. (The caller's line may be changed.)
    while (slot.digits && value.size() > 1 && value.front() == '0') {
      const_cast<char*>(value.data())[0] = ' ';
      value.remove_prefix(1);
    }
    if (slot.digits && !FitsUint64(value)) {
      return absl::InvalidArgumentError(
          absl::StrCat("slot \"", slot.name, "\": ", QuotedCell(value),
                       " is too large for the type UINT64 (at most ", UINT64_MAX, ")"));
    }
    if (first == nullptr || slot.dim > 1) first = value.data();
    const int column = slot.columns[slot.dim > 1 ? i : 0];
    if (column < 0) continue;
    // In a slot with any number of values, the cell spans all values and the blanks between them.
    values_[column] = std::string_view(first, value.data() + value.size() - first);
    missing_[column] = false;
  }
  return absl::OkStatus();
}

absl::Status MultiSlotParser::Parse(char* line, size_t size) {
  std::fill(values_.begin(), values_.end(), std::string_view(""));
  std::fill_n(missing_.get(), values_.size(), true);
  std::string_view rest(line, size);
  for (const CompiledSlot& slot : slots_) SLUICE_RETURN_IF_ERROR(ParseSlot(slot, &rest));
  const std::string_view more = TakeWord(&rest);
  MarkMissing(absent_, kFirstFeature);
  if (more.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the line continues with ", QuotedCell(more),
                                                 " after its ", slots_.size(), " slots"));
}

}  // namespace sluice
