#include "model/model_spec.h"

#include <algorithm>

#include "common/base/status_macros.h"

namespace sluice {

absl::StatusOr<std::unique_ptr<ModelSpec>> ModelSpec::Create(const JobConfig& job,
                                                             const ModelList& models) {
  SLUICE_ASSIGN_OR_RETURN(const ModelEntry* const entry, models.Find(job.model()));
  return entry->create_spec(job);
}

void ResolveShards(uint32_t num_pservers, google::protobuf::RepeatedPtrField<TableConfig>* tables) {
  for (TableConfig& table : *tables) {
    if (table.kind() == TableConfig::SPARSE && table.num_shards() == 0) {
      table.set_num_shards(std::max<uint32_t>(4 * num_pservers, 16));
    }
  }
}

}  // namespace sluice
