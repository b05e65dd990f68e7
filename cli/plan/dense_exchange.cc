#include "cli/plan/dense_exchange.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/base/status_macros.h"
#include "common/collective/gradient_buckets.h"
#include "common/collective/operation_header.h"
#include "common/config/mode.h"
#include "common/table/table_layout.h"
#include "model/built_in_models.h"
#include "model/model_spec.h"

namespace sluice::plan {
namespace {

// Messages for a batch of gradients that is reduced part by part; a small one goes whole, in one
// message.
constexpr double kMessagesOfABatch = 4;
// Defaults of sync_configs, for jobs of other modes.
constexpr uint64_t kFuseMb = 32;
constexpr size_t kFuseLayers = 20;

struct Size {
  double sent_bytes = 0;  // of the values, on the wire
  double floats = 0;      // with optimizer state
  void Add(const TableLayout& table) {
    const double elements = static_cast<double>(table.elements());
    sent_bytes += elements * table.wire_bytes();
    floats += elements * (1 + table.state_floats());
  }
};

void SetMessages(const JobConfig& job, const std::vector<GradientSize>& exchanged,
                 PlanCosts* costs) {
  const SyncConfigs& sync = job.strategy().sync_configs();
  const uint64_t megabytes = sync.has_fuse_mb() ? sync.fuse_mb() : kFuseMb;
  const size_t tables = sync.has_fuse_layers() ? sync.fuse_layers() : kFuseLayers;
  const std::vector<GradientBucket> batches =
      PlanGradientBuckets(exchanged, megabytes << 20, std::max<size_t>(1, tables));
  double messages = 0, whole_bytes = 0;
  for (const GradientBucket& batch : batches) {
    const uint64_t values = batch.elements + 1;  // as GradientExchange sends it
    const bool whole = values * batch.wire_bytes <= OperationHeader::kMaxInlineBytes;
    messages += whole ? 1 : kMessagesOfABatch;
    if (whole) whole_bytes += static_cast<double>(batch.elements * batch.wire_bytes);
  }
  costs->set_exchange_batches(static_cast<double>(batches.size()));
  costs->set_exchange_messages(messages);
  costs->set_exchange_whole_bytes(whole_bytes);
}

}  // namespace

absl::Status SetDenseExchange(const JobConfig& job, PlanCosts* costs) {
  const bool collective = WorkersKeepDenseTables(job);
  SLUICE_ASSIGN_OR_RETURN(const auto model, ModelSpec::Create(job, BuiltInSpecs()));
  Size all, kept;
  std::vector<GradientSize> exchanged;
  for (const int t : model->dense_tables()) {
    google::protobuf::RepeatedPtrField<TableConfig> one;
    *one.Add() = model->tables()[t];
    SLUICE_ASSIGN_OR_RETURN(const TableLayouts table, CreateTableLayouts(one, /*seed=*/0));
    all.Add(*table[0]);
    // A collective job may keep some tables on pservers (update_at). Only the others are exchanged.
    if (collective && !table[0]->on_workers()) {
      kept.Add(*table[0]);
    } else {
      exchanged.push_back({table[0]->elements(), table[0]->wire_bytes()});
    }
  }
  SetMessages(job, exchanged, costs);
  costs->set_dense_bytes(all.sent_bytes);
  // Costs from a file may have these of another job.
  costs->clear_kept_dense_bytes();
  costs->clear_kept_dense_memory_bytes();
  if (kept.sent_bytes == 0) return absl::OkStatus();
  costs->set_kept_dense_bytes(kept.sent_bytes);
  // Memory is shared out by floats with optimizer state, which the wire does not carry.
  costs->set_kept_dense_memory_bytes(costs->dense_memory_bytes() * kept.floats / all.floats);
  return absl::OkStatus();
}

}  // namespace sluice::plan
