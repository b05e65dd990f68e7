// A saved model or checkpoint, opened by its manifest and its job.
//
// Thread safety: immutable.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "common/table/table_layout.h"
#include "proto/config.pb.h"
#include "proto/model.pb.h"

namespace sluice {

struct ModelFolder {
  std::string dir;
  Manifest manifest;
  JobConfig job;
  TableLayouts layouts;  // of manifest.tables()

  // `dir` holds a model or a checkpoint itself. Errors as ReadManifest and ReadModelJob.
  static absl::StatusOr<ModelFolder> Read(const std::string& dir, Env* env);

  bool checkpoint() const { return manifest.has_checkpoint(); }
};

// The table with this name; without a name the only sparse one. INVALID_ARGUMENT lists the tables.
// `dir` is for messages.
absl::StatusOr<const TableLayout*> ChooseTable(const std::string& dir, const TableLayouts& layouts,
                                               const std::string& name);
// The same; INVALID_ARGUMENT also when the table is dense.
absl::StatusOr<const TableLayout*> ChooseSparseTable(const std::string& dir,
                                                     const TableLayouts& layouts,
                                                     const std::string& name);

}  // namespace sluice
