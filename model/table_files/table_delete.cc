#include "model/table_files/table_delete.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "model/model_spec.h"
#include "model/table_files/row_ages.h"
#include "model/table_files/row_keys.h"
#include "model/table_files/table_source.h"

namespace sluice {
namespace {

constexpr size_t kUnmatchedExamples = 3;

// Keys by shard, ascending, each once.
using KeysByShard = std::vector<std::vector<uint64_t>>;

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

class Deletion {
 public:
  Deletion(const DeleteOptions& options, const ModelList& models, Env* env)
      : options_(options), models_(models), env_(env) {}

  absl::StatusOr<DeleteReport> Run() {
    SLUICE_ASSIGN_OR_RETURN(folder_, ModelFolder::Read(options_.folder, env_));
    SLUICE_RETURN_IF_ERROR(OpenTable());
    SLUICE_RETURN_IF_ERROR(ReadKeys());
    DeleteChooser chooser(*table_, keys_, folder_.checkpoint(), &report_.found);
    SLUICE_ASSIGN_OR_RETURN(report_.rewrite,
                            RewriteFolder(folder_, *table_, options_.output, &chooser, env_));
    return report_;
  }

 private:
  absl::Status OpenTable() {
    std::string name = options_.table;
    if (!options_.feature.empty()) {
      SLUICE_RETURN_IF_ERROR(MakeSpec());
      SLUICE_ASSIGN_OR_RETURN(const FeatureKeys keys,
                              FeatureKeys::Create(folder_.job, *spec_, options_.feature));
      if (name.empty()) name = keys.table();
    }
    SLUICE_ASSIGN_OR_RETURN(table_, ChooseSparseTable(options_.folder, folder_.layouts, name));
    report_.table = table_->name();
    return absl::OkStatus();
  }

  absl::Status MakeSpec() {
    if (spec_ != nullptr) return absl::OkStatus();
    SLUICE_ASSIGN_OR_RETURN(spec_, ModelSpec::Create(folder_.job, models_));
    return absl::OkStatus();
  }

  absl::Status ReadKeys() {
    const TableColumns columns(*table_, 0);
    SourceOptions options;
    options.columns = &columns;
    options.names_only = true;
    options.names_are_values = !options_.feature.empty();
    SLUICE_ASSIGN_OR_RETURN(const auto source, TableSource::Open(options_.files, options, env_));
    std::optional<RowKeys> names;
    if (source->row_name() != RowName::kKey || !options_.feature.empty()) {
      SLUICE_RETURN_IF_ERROR(MakeSpec());
      SLUICE_ASSIGN_OR_RETURN(
          RowKeys keys, RowKeys::Create(folder_.job, *spec_, {table_->name(), options_.feature, ""},
                                        *source, env_));
      names.emplace(std::move(keys));
    }
    keys_.resize(table_->num_files());
    SourceBlock block;
    std::vector<std::optional<uint64_t>> keys;
    for (uint64_t first = 0;; first += block.rows) {
      SLUICE_ASSIGN_OR_RETURN(const bool more, source->Next(&block));
      if (!more) break;
      if (names) {
        SLUICE_RETURN_IF_ERROR(names->Resolve(block, first, &keys));
      } else {
        keys.assign(block.numbers.begin(), block.numbers.end());
      }
      for (size_t i = 0; i < block.rows; ++i) {
        if (keys[i]) {
          keys_[table_->ShardOf(*keys[i])].push_back(*keys[i]);
        } else if (report_.unmatched++ < kUnmatchedExamples) {
          report_.examples.push_back(
              absl::StrCat(names->NameOf(block, i, first), " (", source->PlaceOf(first + i), ")"));
        }
      }
    }
    report_.folded = names && names->folded();
    for (std::vector<uint64_t>& shard : keys_) {
      std::sort(shard.begin(), shard.end());
      shard.erase(std::unique(shard.begin(), shard.end()), shard.end());
      report_.keys += shard.size();
    }
    return absl::OkStatus();
  }

  const DeleteOptions& options_;
  const ModelList& models_;
  Env* const env_;
  ModelFolder folder_;
  std::unique_ptr<ModelSpec> spec_;
  const TableLayout* table_ = nullptr;  // in folder_.layouts
  KeysByShard keys_;
  DeleteReport report_;
};

}  // namespace

absl::StatusOr<DeleteReport> DeleteRows(const DeleteOptions& options, const ModelList& models,
                                        Env* env) {
  return Deletion(options, models, env).Run();
}

}  // namespace sluice
