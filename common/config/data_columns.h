// The columns of data, where the format or the configuration names them.
//
// Thread safety:
//   pure functions.
#pragma once

#include <string>
#include <vector>

#include "common/config/config_problem.h"
#include "proto/config.pb.h"

namespace sluice {

// In the order of a line. CSV and TSV: csv.columns, empty when the files' first lines name the
// columns. CRITEO_TSV: label, I1 to I13, C1 to C26. MULTI_SLOT and SLOT_VALUE: the slots; a slot of
// dim > 1 stands for NAME.0, NAME.1, ... Other formats: none.
std::vector<std::string> NamedColumns(const DataConfig& data);

// The columns that folders of the patterns of files name: `day` of data/day=*/part-*.csv. Patterns
// without the name of a folder, such as data/*/part-*.csv, tell none.
std::vector<std::string> FolderColumns(const DataConfig& data);

// Finds the columns that the label, the weight or a feature of `job` reads and the data lacks.
// Finds nothing when the columns are not known here.
std::vector<ConfigProblem> FindColumnProblems(const JobConfig& job);

}  // namespace sluice
