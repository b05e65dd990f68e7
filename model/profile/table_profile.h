// Reads a bounded part of data files and collects what their columns hold.
//
// Memory: bounded by the number of columns (RowCutter), whatever the size of the files.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "model/data/bad_lines.h"
#include "model/profile/column_profile.h"
#include "model/profile/row_sample.h"
#include "model/profile/text_shape.h"

namespace sluice {

// Stands for the standard input in a list of files.
inline constexpr char kStandardInputFile[] = "-";

struct ProfileLimits {
  // Bytes of decompressed text of all files together. A plain file that is not read whole is read
  // in several places, a compressed one from its beginning. Of Parquet, bytes of decoded columns;
  // a file that is not read whole is read at the beginning of row groups all over it.
  uint64_t bytes = 64 << 20;
  size_t files = 64;  // the first, the last and others between them
};

struct TableProfile {
  struct File {
    std::string path;
    uint64_t size = 0;  // on the disk
    bool compressed = false;
    bool looked_at = false, whole = false;
    uint64_t lines = 0, text_bytes = 0;  // of what was looked at; rows, and their cells as text
  };
  TextShape shape;
  std::vector<ColumnProfile> columns;
  std::vector<ColumnProfile> folder_columns;  // of the names of folders; FolderColumns fills them
  // Columns that no feature can have, and why; those that cannot be read are not in `columns`.
  std::vector<std::pair<std::string, std::string>> no_features;
  std::vector<std::string> duplicate_names;
  RowSample rows;
  std::vector<File> files;
  BadLines bad;             // by cells and format
  uint64_t lines = 0;       // looked at, bad ones among them
  uint64_t text_bytes = 0;  // looked at
  uint64_t all_lines = 0;   // of all files: exact when `whole`, else an estimate
  bool whole = true;        // everything was looked at
  uint64_t row_groups = 0;  // of the files looked at; 0: they have none
};

// `files` are paths, or kStandardInputFile alone. Errors name the file: it cannot be read, is
// neither text (CheckTextForm) nor Parquet, has no columns (GuessShape) or other ones than the
// first file. FAILED_PRECONDITION: Parquet without the Arrow library.
absl::StatusOr<TableProfile> ProfileTable(const std::vector<std::string>& files,
                                          const ProfileLimits& limits, Env* env);

// The columns that folders `key=value` name (partition_folders.h). `patterns` have found the files
// of the table. A row has the value of its file; one of a file without such a folder has none.
// Columns that the files have themselves are left out.
std::vector<ColumnProfile> FolderColumns(const std::vector<std::string>& patterns,
                                         const TableProfile& table);

}  // namespace sluice
