#include "model/table_files/table_delete.h"

#include <algorithm>

#include "common/base/status_macros.h"
#include "model/table_files/row_ages.h"

namespace sluice {
namespace {

using KeysByShard = std::vector<std::vector<uint64_t>>;  // as in NamedKeys

class DeleteChooser : public RowChooser {
 public:
  DeleteChooser(const TableLayout& table, const KeysByShard& keys, bool history, uint64_t* found)
      : table_(table), keys_(keys), history_(history), found_(*found) {}

  absl::Status Choose(uint32_t shard, const ShardFacts& facts, const RowRecords& rows,
                      std::vector<RowFate>* fates) override {
    const std::vector<uint64_t>& keys = keys_[shard];
    const RowAges ages(table_.config().expire(), facts);
    for (size_t i = 0; i < rows.size() && !keys.empty(); ++i) {
      if (!std::binary_search(keys.begin(), keys.end(), rows.key(i))) continue;
      // Nobody can read an expired row, so it is not found. It goes all the same.
      const bool expired = history_ && ages.Expired(rows.last_seen(i), rows.count(i));
      (*fates)[i] = expired ? RowFate::kExpired : RowFate::kDeleted;
      found_ += !expired;
    }
    return absl::OkStatus();
  }

 private:
  const TableLayout& table_;
  const KeysByShard& keys_;
  const bool history_;
  uint64_t& found_;
};

}  // namespace

absl::StatusOr<DeleteReport> DeleteRows(const DeleteOptions& options, const ModelList& models,
                                        Env* env) {
  SLUICE_ASSIGN_OR_RETURN(const ModelFolder folder, ModelFolder::Read(options.folder, env));
  KeyFiles files(folder.job, models, options.feature, env);
  std::string name = options.table;
  if (name.empty()) {
    SLUICE_ASSIGN_OR_RETURN(name, files.Table());
  }
  SLUICE_ASSIGN_OR_RETURN(const TableLayout* const table,
                          ChooseSparseTable(options.folder, folder.layouts, name));
  DeleteReport report;
  report.table = table->name();
  SLUICE_ASSIGN_OR_RETURN(report.named, files.Read(options.files, *table));
  DeleteChooser chooser(*table, report.named.by_shard, folder.checkpoint(), &report.found);
  SLUICE_ASSIGN_OR_RETURN(report.rewrite,
                          RewriteFolder(folder, *table, options.output, &chooser, env));
  return report;
}

}  // namespace sluice
