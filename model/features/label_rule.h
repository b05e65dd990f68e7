// Turns a label cell into 0 or 1 (LabelConfig), or takes it as it is, where any number is a label.
//
// Thread safety: immutable.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/features/cell.h"
#include "proto/config.pb.h"

namespace sluice {

class LabelRule {
 public:
  // INVALID_ARGUMENT for overlapping lists, `negative` alone, or lists with positive_at_least.
  // `any_number`: without a rule of the job every finite number is a label, as it is.
  static absl::StatusOr<LabelRule> Create(const DataConfig& data, bool any_number = false);
  // INVALID_ARGUMENT names column and value. *value_index is the cell's index in label.positive
  // followed by label.negative, or -1 if it is in neither.
  absl::Status Apply(std::string_view cell, float* label, int* value_index) const;

 private:
  // The values of a list, and those that are numbers.
  struct Values {
    std::vector<std::string> texts;
    std::vector<std::pair<double, int>> numbers;  // and their indices in texts
  };
  Values ValuesOf(const google::protobuf::RepeatedPtrField<std::string>& texts) const;
  // -1 if the cell is not in the list. Numbers are equal by value: 1.0 and +1 are in a list with 1.
  int IndexOf(const Values& list, std::string_view cell) const;
  bool Number(std::string_view cell, double* value) const {
    return decimal_comma_ ? ParseCommaNumber(cell, value) : ParseNumber(cell, value);
  }

  std::string column_;
  Values positive_, negative_;
  bool decimal_comma_ = false;
  bool signed_labels_ = false;  // LIBSVM: -1 means 0
  bool any_number_ = false;
  bool has_threshold_ = false;
  double threshold_ = 0;
};

}  // namespace sluice
