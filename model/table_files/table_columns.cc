#include "model/table_files/table_columns.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

// A group whose name is that of another column gets a longer one.
std::string ColumnOfGroup(const std::string& group) {
  for (const char* const taken :
       {kKeyColumn, kValueColumn, kFeatureColumn, kCountColumn, kLastSeenColumn}) {
    if (group == taken) return absl::StrCat(kWeightsColumn, "_", group);
  }
  return absl::StartsWith(group, "state_") ? absl::StrCat(kWeightsColumn, "_", group) : group;
}

}  // namespace

std::vector<std::string> StateNames(const OptimizerConfig& optimizer) {
  switch (optimizer.rule_case()) {
    case OptimizerConfig::kMomentum:
      return {"buf"};
    case OptimizerConfig::kAdam:
      return {"m", "v"};
    case OptimizerConfig::kAdagrad:
      return {"a"};
    case OptimizerConfig::kFtrl:
      return {"z", "n"};
    case OptimizerConfig::kSgd:
    case OptimizerConfig::RULE_NOT_SET:
      break;
  }
  return {};
}

TableColumns::TableColumns(const TableLayout& table, uint32_t state_floats)
    : row_floats_(table.dim() + state_floats) {
  const bool one = table.columns().size() == 1;
  for (const TableLayout::Column& column : table.columns()) {
    floats_.push_back({one ? std::string(kWeightsColumn) : ColumnOfGroup(column.name), column.begin,
                       column.dim, column.name});
  }
  groups_ = floats_.size();
  if (state_floats == 0) return;
  for (const TableLayout::Column& column : table.columns()) {
    uint32_t begin = table.dim() + column.state_begin;
    for (const std::string& name : StateNames(column.optimizer)) {
      floats_.push_back({absl::StrCat("state_", one ? "" : absl::StrCat(column.name, "_"), name),
                         begin, column.dim});
      begin += column.dim;
    }
  }
}

}  // namespace sluice
