// Parses a line of Paddle's MultiSlot text: for each slot, in order, `count value ... value`.
//
// Memory: as LineParser.
//
// Thread safety: one thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "google/protobuf/repeated_field.h"
#include "model/data/line_parser.h"
#include "proto/config.pb.h"

namespace sluice {

using Slots = google::protobuf::RepeatedPtrField<Slot>;

class MultiSlotParser : public LineParser {
 public:
  // `name_of_column` gives the index in NamedColumns of the slots for each of the schema's columns,
  // or -1 (always missing).
  // Values of features among `missing` are missing.
  MultiSlotParser(const Slots& slots, const std::vector<int>& name_of_column,
                  std::vector<std::string> missing);
  absl::Status Parse(char* line, size_t size) override;

 private:
  struct CompiledSlot {
    std::string name;
    bool digits = false;       // values are decimal digits
    uint32_t dim = 0;          // 0: any number of values in one column
    std::vector<int> columns;  // the schema's column of each value; -1: not needed
  };
  absl::Status ParseSlot(const CompiledSlot& slot, std::string_view* rest);

  std::vector<CompiledSlot> slots_;
  const std::vector<std::string> absent_;
};

}  // namespace sluice
