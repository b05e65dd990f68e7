#include "common/saved_model/model_tables.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/optimizer/update_rule.h"

namespace sluice {
namespace {

// Describes all that must be equal: "dense 39 x 400", "sparse, columns wide (1), embedding (10)".
std::string Form(const TableConfig& table) {
  if (table.kind() != TableConfig::SPARSE)
    return absl::StrCat("dense ", absl::StrJoin(table.shape(), " x "));
  return absl::StrCat(
      "sparse, columns ",
      absl::StrJoin(table.columns(), ", ", [](std::string* out, const ColumnGroup& column) {
        absl::StrAppend(out, column.name(), " (", column.dim(), ")");
      }));
}

// Says why `table` does not fit the model; empty when it fits.
std::string Misfit(const std::string& dir, const Manifest& manifest, const TableConfig& table) {
  const auto saved = std::find_if(manifest.tables().begin(), manifest.tables().end(),
                                  [&](const TableConfig& t) { return t.name() == table.name(); });
  if (saved == manifest.tables().end())
    return absl::StrCat("table '", table.name(), "' is not in ", dir);
  if (Form(*saved) == Form(table)) return "";
  return absl::StrCat("table '", table.name(), "' of ", dir, " is ", Form(*saved),
                      "; the job's is ", Form(table));
}

absl::Status CheckRule(const std::string& dir, const std::string& what,
                       const OptimizerConfig& saved, const OptimizerConfig& job,
                       const std::string& fix) {
  // The state of a rule means nothing to another one. Its options, such as the rate, may differ.
  if (saved.rule_case() == job.rule_case()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " of ", dir, " has the optimizer ",
                                                 RuleName(saved), "; the job's has ", RuleName(job),
                                                 "; ", fix));
}

}  // namespace

absl::Status CheckRules(const std::string& dir, const Manifest& manifest,
                        const std::vector<TableConfig>& tables, const std::string& fix) {
  for (const TableConfig& table : tables) {
    for (const TableConfig& saved : manifest.tables()) {
      if (saved.name() != table.name()) continue;
      const std::string what = absl::StrCat("table '", table.name(), "'");
      SLUICE_RETURN_IF_ERROR(CheckRule(dir, what, saved.optimizer(), table.optimizer(), fix));
      for (int c = 0; c < table.columns_size(); ++c) {
        SLUICE_RETURN_IF_ERROR(
            CheckRule(dir, absl::StrCat("column '", table.columns(c).name(), "' of ", what),
                      saved.columns(c).optimizer(), table.columns(c).optimizer(), fix));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckStart(const std::string& dir, const Manifest& manifest,
                        const std::vector<TableConfig>& tables, std::vector<std::string>* fresh) {
  std::vector<TableConfig> shared;
  for (const TableConfig& table : tables) {
    const bool saved = std::any_of(manifest.tables().begin(), manifest.tables().end(),
                                   [&](const TableConfig& t) { return t.name() == table.name(); });
    if (saved) {
      shared.push_back(table);
    } else if (fresh != nullptr) {
      fresh->push_back(table.name());
    }
  }
  // Names the tables of both sides.
  SLUICE_RETURN_IF_ERROR(CheckTables(dir, manifest, shared.empty() ? tables : shared));
  return CheckRules(dir, manifest, shared,
                    "give the optimizers of the checkpoint, or start from its values alone with "
                    "initial_model");
}

absl::Status CheckTables(const std::string& dir, const Manifest& manifest,
                         const std::vector<TableConfig>& tables) {
  std::string first;
  size_t more = 0;
  for (const TableConfig& table : tables) {
    std::string misfit = Misfit(dir, manifest, table);
    if (misfit.empty()) continue;
    // The first misfit is told in full; a list of hundreds of tables would hide it.
    if (first.empty()) {
      first = std::move(misfit);
    } else {
      ++more;
    }
  }
  if (first.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      first,
      more == 0 ? ""
                : absl::StrCat(", and ", more, more == 1 ? " more table does" : " more tables do",
                               " not fit"),
      "; give a model that was trained with this job's features and widths, or change the job's to "
      "match the model"));
}

}  // namespace sluice
