// What `sluice table stats` prints: the histograms of sparse tables, for people and as JSON.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <string>

#include "model/table_files/table_stats.h"

namespace sluice::cli {

// `folder` is the model's or checkpoint's, as it was given.
std::string TableStatsText(const std::string& folder, const FolderStats& stats);
// One object. docs/tables.md has its fields.
std::string TableStatsJson(const std::string& folder, const FolderStats& stats);

}  // namespace sluice::cli
