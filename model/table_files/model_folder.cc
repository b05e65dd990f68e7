#include "model/table_files/model_folder.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/config/closest_name.h"
#include "common/saved_model/saved_model.h"

namespace sluice {

absl::StatusOr<ModelFolder> ModelFolder::Read(const std::string& dir, Env* env) {
  ModelFolder folder;
  folder.dir = dir;
  SLUICE_ASSIGN_OR_RETURN(folder.manifest, ReadManifest(dir, env));
  SLUICE_ASSIGN_OR_RETURN(folder.job, ReadModelJob(dir, env));
  SLUICE_ASSIGN_OR_RETURN(folder.layouts,
                          CreateTableLayouts(folder.manifest.tables(), folder.job.train().seed()));
  return folder;
}

absl::StatusOr<const TableLayout*> ChooseTable(const std::string& dir, const TableLayouts& layouts,
                                               const std::string& name) {
  std::vector<std::string> names, sparse;
  const TableLayout* only = nullptr;
  for (const auto& layout : layouts) {
    if (layout->name() == name) return layout.get();
    names.push_back(layout->name());
    if (!layout->sparse()) continue;
    sparse.push_back(layout->name());
    only = layout.get();
  }
  if (!name.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(dir, " has no table '", name, "'", DidYouMeanOrAll(name, names)));
  }
  if (sparse.size() == 1) return only;
  return absl::InvalidArgumentError(
      absl::StrCat("--table is not given, and ", dir, " has ", sparse.size(),
                   " sparse tables; give --table=NAME, one of ",
                   absl::StrJoin(sparse.empty() ? names : sparse, ", ")));
}

absl::StatusOr<const TableLayout*> ChooseSparseTable(const std::string& dir,
                                                     const TableLayouts& layouts,
                                                     const std::string& name) {
  SLUICE_ASSIGN_OR_RETURN(const TableLayout* const table, ChooseTable(dir, layouts, name));
  if (table->sparse()) return table;
  return absl::InvalidArgumentError(absl::StrCat(
      "table '", table->name(), "' is dense, one tensor without rows; give a sparse table"));
}

}  // namespace sluice
