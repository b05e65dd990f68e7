// Finds the column that a table's label is in, and which of its values mean 1.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/profile/table_profile.h"

namespace sluice {

struct LabelChoice {
  size_t column = 0;
  // Either values that mean 1 and all values that mean 0, as LabelConfig has them; all empty when
  // the column holds 0 and 1. Or a threshold.
  std::vector<std::string> positive, negative;
  bool has_threshold = false;
  double threshold = 0;
  double positive_share = 0;        // of the labels looked at, about
  std::string why;                  // a sentence
  std::vector<std::string> others;  // names of columns that may be the label as well

  // 1, 0, or -1 for a cell that is no label.
  int LabelOf(std::string_view cell) const;
};

// `wanted`: "" to search, or what --label says: COLUMN, COLUMN=VALUE (that value means 1) or
// COLUMN>=NUMBER. INVALID_ARGUMENT: no column, several equally good ones, an unknown column, or one
// that is no label; says what to give.
absl::StatusOr<LabelChoice> ChooseLabel(const TableProfile& table, const std::string& wanted);

}  // namespace sluice
