// Writes tables as .npz: a zip of NumPy arrays, an array a column.
//
// The rows are read once for each column, since a zip has one array behind the other.
//
// Thread safety: free functions.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/base/env.h"
#include "common/table/table_layout.h"
#include "model/table_files/named_rows.h"
#include "proto/model.pb.h"

namespace sluice {

// `rows`: what rows->Count() gives. `feature`: the name in the column of features, with a
// vocabulary.
absl::Status WriteNpz(NamedRows* rows, uint64_t count, const std::string& feature,
                      std::unique_ptr<NewFile> file);

// The weights of the dense table `layout` in its shape, and with `state` its optimizer's state.
absl::Status WriteDenseNpz(const std::string& dir, const Manifest& manifest,
                           const TableLayout& layout, bool state, Env* env,
                           std::unique_ptr<NewFile> file);

}  // namespace sluice
