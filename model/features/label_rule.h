// Turns a label cell into 0 or 1 (LabelConfig).
//
// Thread safety: immutable.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/config.pb.h"

namespace sluice {

class LabelRule {
 public:
  // INVALID_ARGUMENT for overlapping lists, `negative` alone, or lists with positive_at_least.
  static absl::StatusOr<LabelRule> Create(const DataConfig& data);
  // INVALID_ARGUMENT names column and value. *value_index is the cell's index in label.positive
  // followed by label.negative, or -1 if it is in neither.
  absl::Status Apply(std::string_view cell, float* label, int* value_index) const;

 private:
  // -1 if the cell is not in the list.
  static int IndexOf(const std::vector<std::string>& list, std::string_view cell);

  std::string column_;
  std::vector<std::string> positive_, negative_;
  bool signed_labels_ = false;  // LIBSVM: -1 means 0
  bool has_threshold_ = false;
  double threshold_ = 0;
};

}  // namespace sluice
