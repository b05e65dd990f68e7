// The columns of data whose format or configuration names them.
#pragma once

#include <string>
#include <vector>

#include "common/config/config_problem.h"
#include "proto/config.pb.h"

namespace sluice {

// In the order of a line. CSV and TSV: csv.columns; CRITEO_TSV: label, I1 to I13, C1 to C26;
// MULTI_SLOT: the slots, of one of dim > 1 its values NAME.0, NAME.1, ...; else, and when the
// files' first lines name them, none.
std::vector<std::string> NamedColumns(const DataConfig& data);

// What `job` reads and is not among them: label, weight and features.
std::vector<ConfigProblem> FindColumnProblems(const JobConfig& job);

}  // namespace sluice
