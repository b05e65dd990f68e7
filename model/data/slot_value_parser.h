// Parses a line of PaddleRec's text: words `slot:value` in any order. Several words of one slot are
// its values. A slot that the line leaves out is missing; words of slots that the job does not
// declare are skipped.
//
// Memory: as LineParser.
//
// Thread safety: one thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "model/data/line_parser.h"
#include "model/data/multi_slot_parser.h"

namespace sluice {

class SlotValueParser : public LineParser {
 public:
  // As MultiSlotParser. csv.missing is the schema's, since cells are typed.
  SlotValueParser(const Slots& slots, const std::vector<int>& name_of_column,
                  const std::vector<std::string>& missing);
  absl::Status Parse(char* line, size_t size) override;

 private:
  struct DeclaredSlot {
    std::string name;
    bool digits = false;       // values are decimal digits
    uint32_t dim = 0;          // 0: any number of values in one column
    std::vector<int> columns;  // the schema's column of each value; -1: not needed
    std::vector<Cell> values;  // of the line
  };
  absl::Status TakeWord(std::string_view word);
  // The cells of a slot's columns.
  absl::Status Close(const DeclaredSlot& slot);

  std::vector<DeclaredSlot> slots_;
  absl::flat_hash_map<std::string, size_t> slot_of_name_;
};

}  // namespace sluice
