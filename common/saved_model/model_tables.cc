#include "common/saved_model/model_tables.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/optimizer/update_rule.h"
#include "common/saved_model/start_map.h"

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

const TableConfig* TableOf(const Manifest& manifest, const TableConfig& table) {
  const auto saved = std::find_if(manifest.tables().begin(), manifest.tables().end(),
                                  [&](const TableConfig& t) { return t.name() == table.name(); });
  return saved == manifest.tables().end() ? nullptr : &*saved;
}

// Says why `table` does not fit `saved`; empty when it fits. Null: the model does not have it.
std::string Misfit(const std::string& dir, const TableConfig* saved, const TableConfig& table) {
  if (saved == nullptr) return absl::StrCat("table '", table.name(), "' is not in ", dir);
  if (Form(*saved) == Form(table)) return "";
  return absl::StrCat("table '", table.name(), "' of ", dir, " is ", Form(*saved),
                      "; the job's is ", Form(table));
}

// The same for what a new job takes of a saved table.
std::string StartMisfit(const std::string& dir, const TableConfig* saved,
                        const TableConfig& table) {
  if (!table.has_start() || saved == nullptr) {
    const bool may_lack = table.has_start() && table.start().table().empty();
    return may_lack ? "" : Misfit(dir, saved, table);
  }
  const absl::Status fits = StartMap::Create(*saved, table).status();
  return fits.ok() ? "" : absl::StrCat(dir, ": ", fits.message());
}

absl::Status NoMisfit(const std::vector<std::string>& misfits) {
  if (misfits.empty()) return absl::OkStatus();
  // The first misfit is told in full; a list of hundreds of tables would hide it.
  const size_t more = misfits.size() - 1;
  return absl::InvalidArgumentError(absl::StrCat(
      misfits.front(),
      more == 0 ? ""
                : absl::StrCat(", and ", more, more == 1 ? " more table does" : " more tables do",
                               " not fit"),
      "; give a model that was trained with this job's features and widths, or change the job's to "
      "match the model"));
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

// The columns of the same name in a saved table. Null: it has none.
const ColumnGroup* ColumnsOf(const TableConfig& saved, const std::string& name) {
  const auto found = std::find_if(saved.columns().begin(), saved.columns().end(),
                                  [&](const ColumnGroup& group) { return group.name() == name; });
  return found == saved.columns().end() ? nullptr : &*found;
}

absl::Status CheckRulesOf(const std::string& dir, const TableConfig& saved,
                          const TableConfig& table, const std::string& fix) {
  const std::string what = absl::StrCat("table '", table.name(), "'");
  SLUICE_RETURN_IF_ERROR(CheckRule(dir, what, saved.optimizer(), table.optimizer(), fix));
  for (const ColumnGroup& column : table.columns()) {
    const ColumnGroup* const from = ColumnsOf(saved, column.name());
    if (from == nullptr) continue;
    SLUICE_RETURN_IF_ERROR(CheckRule(dir, absl::StrCat("column '", column.name(), "' of ", what),
                                     from->optimizer(), column.optimizer(), fix));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckRules(const std::string& dir, const Manifest& manifest,
                        const std::vector<TableConfig>& tables) {
  for (const TableConfig& table : tables) {
    const TableConfig* const saved = TableOf(manifest, table);
    if (saved == nullptr) continue;
    SLUICE_RETURN_IF_ERROR(
        CheckRulesOf(dir, *saved, table, "resume with the optimizers of the checkpoint"));
  }
  return absl::OkStatus();
}

absl::Status CheckStart(const std::string& dir, const Manifest& manifest,
                        const std::vector<TableConfig>& tables, std::vector<std::string>* fresh) {
  std::vector<TableConfig> shared;
  for (const TableConfig& table : tables) {
    if (StartOf(manifest, table) != nullptr) {
      shared.push_back(table);
    } else if (fresh != nullptr) {
      fresh->push_back(table.name());
    }
  }
  // Names the tables of both sides.
  if (shared.empty()) return CheckTables(dir, manifest, tables);
  SLUICE_RETURN_IF_ERROR(CheckValues(dir, manifest, shared));
  for (const TableConfig& table : shared) {
    SLUICE_RETURN_IF_ERROR(
        CheckRulesOf(dir, *StartOf(manifest, table), table,
                     "give the optimizers of the checkpoint, or start from its values alone with "
                     "initial_model"));
  }
  return absl::OkStatus();
}

absl::Status CheckTables(const std::string& dir, const Manifest& manifest,
                         const std::vector<TableConfig>& tables) {
  std::vector<std::string> misfits;
  for (const TableConfig& table : tables) {
    std::string misfit = Misfit(dir, TableOf(manifest, table), table);
    if (!misfit.empty()) misfits.push_back(std::move(misfit));
  }
  return NoMisfit(misfits);
}

absl::Status CheckValues(const std::string& dir, const Manifest& manifest,
                         const std::vector<TableConfig>& tables) {
  std::vector<std::string> misfits;
  for (const TableConfig& table : tables) {
    std::string misfit = StartMisfit(dir, StartOf(manifest, table), table);
    if (!misfit.empty()) misfits.push_back(std::move(misfit));
  }
  return NoMisfit(misfits);
}

}  // namespace sluice
