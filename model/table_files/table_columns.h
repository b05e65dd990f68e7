// The columns of the file of a sparse table, as export writes and import reads them.
//
// Format:
//   key            uint64; or value (text) and feature (text)
//   weights        float32 [dim]; a table of several column groups has one column a group, with the
//                  group's name
//   count          uint32, updates of the row; last_seen: uint64, the schedule step of the last one
//   state_NAME     float32 [dim], an array of the optimizer's state; of several groups
//                  state_GROUP_NAME. SGD has none; momentum: buf; Adam: m, v; AdaGrad: a; FTRL: z,
//                  n
// count, last_seen and state_NAME are the state, which only a checkpoint has.
//
// Thread safety: immutable.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/table/table_layout.h"

namespace sluice {

// The names of an optimizer's arrays of state, in the order of a row's state.
std::vector<std::string> StateNames(const OptimizerConfig& optimizer);

class TableColumns {
 public:
  // A column of float32 [dim].
  struct Floats {
    std::string name;
    uint32_t begin = 0;  // the first of them among the floats of a row: weights, then state
    uint32_t dim = 0;
    std::string group;  // "" for state
  };

  // `state_floats`: those of a row in the file: 0 in a model, and in a checkpoint of Geo.
  TableColumns(const TableLayout& table, uint32_t state_floats);

  const std::vector<Floats>& floats() const { return floats_; }
  // The first of floats() that are weights.
  size_t groups() const { return groups_; }
  // Weights and state of a row.
  uint32_t row_floats() const { return row_floats_; }

 private:
  std::vector<Floats> floats_;
  size_t groups_ = 0;
  uint32_t row_floats_ = 0;
};

inline constexpr char kKeyColumn[] = "key", kValueColumn[] = "value", kFeatureColumn[] = "feature";
inline constexpr char kWeightsColumn[] = "weights";
inline constexpr char kCountColumn[] = "count", kLastSeenColumn[] = "last_seen";

}  // namespace sluice
