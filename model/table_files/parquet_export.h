// Writes tables as Parquet, through common/arrow/parquet.h.
//
// Thread safety: free functions.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/base/env.h"
#include "model/table_files/named_rows.h"

namespace sluice {

// FAILED_PRECONDITION: the library is not there, with the way to get it.
absl::Status CheckParquet();

// `feature`: the name in the column of features, with a vocabulary.
absl::Status WriteParquet(NamedRows* rows, const std::string& feature,
                          std::unique_ptr<NewFile> file);

}  // namespace sluice
