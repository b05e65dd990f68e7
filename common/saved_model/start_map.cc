#include "common/saved_model/start_map.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

absl::Status DoesNotFit(const TableConfig& saved, const TableConfig& table, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("table '", table.name(),
                                                 "' cannot start from table '", saved.name(),
                                                 "' of the model: ", why));
}

// The elements of a row along the first dimension.
uint64_t WidthOf(const TableConfig& dense) {
  uint64_t width = 1;
  for (int i = 1; i < dense.shape_size(); ++i) width *= dense.shape(i);
  return width;
}

// Whether all dimensions but the first and the last are equal. The last is the length of a row.
bool SameMiddle(const TableConfig& a, const TableConfig& b) {
  if (a.shape_size() != b.shape_size()) return false;
  for (int i = 1; i + 1 < a.shape_size(); ++i) {
    if (a.shape(i) != b.shape(i)) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const StartMap>> StartMap::Create(const TableConfig& saved,
                                                                 const TableConfig& table) {
  std::shared_ptr<StartMap> map(new StartMap);
  SLUICE_ASSIGN_OR_RETURN(map->saved_layout_, TableLayout::Create(0, saved, /*seed=*/0));
  if (saved.kind() != table.kind()) {
    return DoesNotFit(saved, table,
                      absl::StrCat("one is ", TableConfig::Kind_Name(saved.kind()), ", the other ",
                                   TableConfig::Kind_Name(table.kind())));
  }
  TableConfig resolved = table;
  if (table.kind() == TableConfig::SPARSE && table.num_shards() == 0) {
    resolved.set_num_shards(1);
    // Its sketch would be too large for one shard. Columns do not depend on it.
    resolved.clear_admit();
  }
  SLUICE_ASSIGN_OR_RETURN(const auto layout, TableLayout::Create(0, resolved, /*seed=*/0));
  SLUICE_RETURN_IF_ERROR(map->saved_layout_->sparse() ? map->MapColumns(*layout)
                                                      : map->MapRows(saved, table));
  return map;
}

absl::Status StartMap::MapRows(const TableConfig& saved, const TableConfig& table) {
  if (!SameMiddle(saved, table) || WidthOf(saved) > WidthOf(table)) {
    return DoesNotFit(saved, table,
                      absl::StrCat("it is ", absl::StrJoin(saved.shape(), " x "),
                                   ", and the job's is ", absl::StrJoin(table.shape(), " x ")));
  }
  saved_width_ = WidthOf(saved);
  width_ = WidthOf(table);
  uint64_t behind = 0;  // the first row that no run has reached
  for (const TableStart::Run& run : table.start().rows()) {
    if (run.to() < behind || run.to() > table.shape(0) || run.count() > table.shape(0) - run.to()) {
      return DoesNotFit(saved, table, "its rows overlap, or do not fit the job's table");
    }
    behind = run.to() + run.count();
    counts_.kept += run.count();
    runs_.push_back(run);
  }
  std::sort(runs_.begin(), runs_.end(),
            [](const TableStart::Run& a, const TableStart::Run& b) { return a.from() < b.from(); });
  behind = 0;
  for (const TableStart::Run& run : runs_) {
    if (run.from() < behind || run.from() > saved.shape(0) ||
        run.count() > saved.shape(0) - run.from()) {
      return DoesNotFit(saved, table, "rows are taken twice, or are not in the model's table");
    }
    behind = run.from() + run.count();
  }
  counts_.added = table.shape(0) - counts_.kept;
  counts_.dropped = saved.shape(0) - counts_.kept;
  return absl::OkStatus();
}

absl::Status StartMap::MapColumns(const TableLayout& table) {
  fresh_state_.resize(table.state_floats());
  for (const TableLayout::Column& column : table.columns()) {
    const uint32_t floats = column.rule->state_floats();
    float* arrays[UpdateRule::kMaxState] = {};
    for (uint32_t k = 0; k < floats; ++k)
      arrays[k] = fresh_state_.data() + column.state_begin + k * column.dim;
    column.rule->InitState(arrays, column.dim);
    for (const TableLayout::Column& saved : saved_layout_->columns()) {
      if (saved.name != column.name) continue;
      if (saved.dim > column.dim) {
        return DoesNotFit(
            saved_layout_->config(), table.config(),
            absl::StrCat("columns '", column.name, "' are ", column.dim, " in the job and ",
                         saved.dim, " there, and only more of them can be made of it"));
      }
      counts_.kept += saved.dim;
      weights_.push_back({saved.begin, column.begin, saved.dim});
      // The state of another rule means nothing to this one.
      if (saved.optimizer.rule_case() != column.optimizer.rule_case()) continue;
      for (uint32_t k = 0; k < floats; ++k) {
        state_.push_back(
            {saved.state_begin + k * saved.dim, column.state_begin + k * column.dim, saved.dim});
      }
    }
  }
  counts_.added = table.dim() - counts_.kept;
  counts_.dropped = saved_layout_->dim() - counts_.kept;
  return absl::OkStatus();
}

void StartMap::ConvertRow(const TableLayout& table, uint64_t key, bool state, const char* from,
                          float* to) const {
  const auto copy = [](const std::vector<Copy>& copies, const char* floats, float* row) {
    for (const Copy& c : copies)
      std::memcpy(row + c.to, floats + c.from * sizeof(float), c.n * sizeof(float));
  };
  table.InitialRow(key, to);
  copy(weights_, from, to);
  if (!state) return;
  float* const to_state = to + table.dim();
  std::copy(fresh_state_.begin(), fresh_state_.end(), to_state);
  copy(state_, from + saved_layout_->dim() * sizeof(float), to_state);
}

const TableConfig* StartOf(const Manifest& manifest, const TableConfig& table) {
  const std::string& name = table.has_start() ? table.start().table() : table.name();
  const auto found = std::find_if(manifest.tables().begin(), manifest.tables().end(),
                                  [&](const TableConfig& saved) { return saved.name() == name; });
  return found == manifest.tables().end() ? nullptr : &*found;
}

}  // namespace sluice
