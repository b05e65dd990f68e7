// A job's model without its networks: its features and its tables.
//
// The scheduler and the command line need nothing else of a model, so this target links no compute
// library. Nothing outside model/<name>/ knows a model's options.
//
// Thread safety: immutable.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/features/feature_schema.h"
#include "model/model_list.h"
#include "proto/config.pb.h"
#include "proto/model.pb.h"

namespace sluice {

class ModelSpec {
 public:
  // `job` must be effective (job_config.h). INVALID_ARGUMENT names the field and the fix; a model
  // that is not in `models` is one such error.
  static absl::StatusOr<std::unique_ptr<ModelSpec>> Create(const JobConfig& job,
                                                           const ModelList& models);
  virtual ~ModelSpec() = default;

  virtual const std::shared_ptr<const FeatureSchema>& schema() const = 0;

  // The job's tables with their optimizers and initial values, after the overrides of job.tables().
  // Creating the spec fails if job.tables() overrides a table that the model does not have.
  virtual const std::vector<TableConfig>& tables() const = 0;
  // Indices in tables() of the sparse tables, in the order in which networks get their rows. Slot s
  // of schema() has its keys in the table sparse_tables()[schema()->slots()[s].table].
  virtual const std::vector<int>& sparse_tables() const = 0;
  // Indices in tables() of the dense tables, in the network's order.
  virtual const std::vector<int>& dense_tables() const = 0;

  // For each part of the model whose dense weights belong to the positions of its inputs: its
  // inputs in this order, such as "the number of \"age\"". Saved values only fit a job with the
  // same inputs (model_match.h). The parts have names for messages, such as "deep".
  virtual std::map<std::string, std::vector<std::string>> ordered_inputs() const = 0;

  // The rows of a dense table, along its first dimension, that belong to one input.
  struct InputRows {
    std::string input;    // as in ordered_inputs; unique in its table
    std::string feature;  // that feeds it
    uint64_t rows = 1;
  };
  struct InputTable {
    std::vector<InputRows> inputs;  // in the order of the rows, without gaps
    bool embeddings = false;        // rows may become longer, when embedding_dim does
  };
  // The dense tables whose rows belong to inputs, by name. A new job may then have other inputs
  // than the model from which it starts (feature_changes.h). Absent: it must have the same ones.
  virtual std::optional<std::map<std::string, InputTable>> input_tables() const {
    return std::nullopt;
  }
};

// INVALID_ARGUMENT when train.compute_dtype needs a CUDA device, but a worker of the job computes
// on the CPU (`on_cpu`). `job` must be effective.
absl::Status CheckComputeType(const JobConfig& job, bool on_cpu);

// Whether which rows the table has depends on its number of shards, which is therefore fixed.
bool HasFixedShards(const TableConfig& table);

// Sets num_shards of the tables with HasFixedShards: that of the checkpoint from which the job
// starts, else 256. `checkpoint` may be null. INVALID_ARGUMENT when the job asks for another
// number, or when the table's limit of rows is below it.
absl::Status FixShards(const Manifest* checkpoint, std::vector<TableConfig>* tables);

// Sets num_shards of each sparse table where it is 0: 4 x pservers, at least 16; 256 with
// HasFixedShards.
void ResolveShards(uint32_t num_pservers, google::protobuf::RepeatedPtrField<TableConfig>* tables);

// INVALID_ARGUMENT when a table cannot be laid out with so many pservers, the limit of rows of one
// without HasFixedShards is below its shards, or the tables have too many shards.
absl::Status CheckShards(const JobConfig& job, const std::vector<TableConfig>& tables,
                         uint32_t num_pservers);

// Applies the options of the job that every model's tables share, in this order: in Geo, workers
// update the tables; sync_configs.dense: COLLECTIVE says who keeps the dense tables; tables { ... }
// overrides them; lr_scale: WORKERS multiplies each learning rate, and the rate at which its
// schedule ends, by worker_num. A job that only evaluates has all tables on pservers, or none.
//
// An override names its table or column group and may change initializer, optimizer, num_shards,
// max_rows, max_gib, expire, evict, admit, wire_type and, in sync, update_at of a dense table.
// Kind, shape and dims belong to the model. An optimizer with a rule replaces the derived one;
// without a rule it only changes the fields that it sets. INVALID_ARGUMENT names the table, the
// field and the fix.
absl::Status CompleteTables(const JobConfig& job, std::vector<TableConfig>* tables);

}  // namespace sluice
