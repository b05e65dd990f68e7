// How the files of a format are read: ReadName for each line of common/config/data_formats.inc.
//
// Thread safety: pure functions.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "model/data/data_source.h"
#include "model/features/feature_schema.h"
#include "proto/config.pb.h"

namespace sluice {

struct FormatReader {
  // INVALID_ARGUMENT when options or features do not fit the format.
  absl::StatusOr<std::unique_ptr<DataSource>> (*make_source)(
      const DataConfig& config, std::shared_ptr<const FeatureSchema> schema, Env* env);
  // The columns of a file, in the order of a line, where the configuration does not name them.
  // Empty: the file has no lines, and another one must tell. Null: no file names its columns.
  absl::StatusOr<std::vector<std::string>> (*columns_of_file)(const DataConfig& config,
                                                              const std::string& path, Env* env);
};

#define SLUICE_DATA_FORMAT(enumerator, Name) FormatReader Read##Name();
#include "common/config/data_formats.inc"
#undef SLUICE_DATA_FORMAT

// Null when `config` has no format. Lives as long as the program.
const FormatReader* ReaderOf(const DataConfig& config);

}  // namespace sluice
