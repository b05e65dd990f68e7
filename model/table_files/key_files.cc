#include "model/table_files/key_files.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "model/table_files/feature_keys.h"
#include "model/table_files/row_keys.h"
#include "model/table_files/table_source.h"

namespace sluice {
namespace {

constexpr size_t kUnmatchedExamples = 3;

}  // namespace

absl::Status KeyFiles::MakeSpec() {
  if (spec_ != nullptr) return absl::OkStatus();
  SLUICE_ASSIGN_OR_RETURN(spec_, ModelSpec::Create(job_, models_));
  return absl::OkStatus();
}

absl::StatusOr<std::string> KeyFiles::Table() {
  if (feature_.empty()) return std::string();
  SLUICE_RETURN_IF_ERROR(MakeSpec());
  SLUICE_ASSIGN_OR_RETURN(const FeatureKeys keys, FeatureKeys::Create(job_, *spec_, feature_));
  return keys.table();
}

absl::StatusOr<NamedKeys> KeyFiles::Read(const std::vector<std::string>& files,
                                         const TableLayout& table) {
  const TableColumns columns(table, 0);
  SourceOptions options;
  options.columns = &columns;
  options.names_only = true;
  options.names_are_values = !feature_.empty();
  SLUICE_ASSIGN_OR_RETURN(const auto source, TableSource::Open(files, options, env_));
  std::optional<RowKeys> names;
  if (source->row_name() != RowName::kKey || !feature_.empty()) {
    SLUICE_RETURN_IF_ERROR(MakeSpec());
    SLUICE_ASSIGN_OR_RETURN(
        RowKeys keys, RowKeys::Create(job_, *spec_, {table.name(), feature_, ""}, *source, env_));
    names.emplace(std::move(keys));
  }
  NamedKeys named;
  named.by_shard.resize(table.num_files());
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
        named.by_shard[table.ShardOf(*keys[i])].push_back(*keys[i]);
      } else if (named.unmatched++ < kUnmatchedExamples) {
        named.examples.push_back(
            absl::StrCat(names->NameOf(block, i, first), " (", source->PlaceOf(first + i), ")"));
      }
    }
  }
  named.folded = names && names->folded();
  for (std::vector<uint64_t>& shard : named.by_shard) {
    std::sort(shard.begin(), shard.end());
    shard.erase(std::unique(shard.begin(), shard.end()), shard.end());
    named.keys += shard.size();
  }
  return named;
}

}  // namespace sluice
