// Columns that folders name: in the path .../day=2026-11-01/country=de/part-0.parquet below the
// first wildcard of a pattern, `day` and `country` are columns with one value for the file.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "proto/config.pb.h"

namespace sluice {

// The folders before the one or the name with the pattern's first wildcard, with characters that
// '\' marks as plain ones; "" when it has no wildcard.
std::string FixedFolders(const std::string& pattern);

// Names and values of the folders `key=value` of the path, with %-codes as the characters that they
// stand for, and empty for null (`__HIVE_DEFAULT_PARTITION__`); of two folders of one name the last
// one. Only those below the first wildcard of the pattern of `data` that has found the path; of a
// path that none has found, all.
std::vector<std::pair<std::string, std::string>> PartitionColumns(const DataConfig& data,
                                                                  const std::string& path);

}  // namespace sluice
