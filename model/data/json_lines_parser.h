// Parses an object of JSON on a line. Columns are its keys; a field of an object within it is the
// column `a.b`, and so is a key that is written "a.b".
//
// Strings are text, integers of 64 bits exact integers, larger ones their decimal text, other
// numbers doubles; an array has several values. null, and a key that the line leaves out, is
// missing. Of values that no column needs only the extent is checked.
//
// Memory: a copy of the line, and as LineParser.
//
// Thread safety: one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "model/data/line_parser.h"

namespace sluice {

class JsonLinesParser : public LineParser {
 public:
  // `columns`: their names; "" for one that is not needed.
  explicit JsonLinesParser(const std::vector<std::string>& columns);
  ~JsonLinesParser() override;
  absl::Status Parse(char* line, size_t size) override;
  void CountNames(std::vector<uint64_t>* counts) const override;

  // Calls `found` for the name of each column of the line, in its order.
  static absl::Status FindColumns(std::string_view line,
                                  const std::function<void(const std::string&)>& found);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
