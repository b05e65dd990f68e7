#include "model/model_spec.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/config/config_problem.h"
#include "common/config/job_config.h"
#include "common/config/mode.h"
#include "common/optimizer/frozen_rule.h"
#include "common/optimizer/update_rule.h"
#include "common/saved_model/start_map.h"
#include "common/table/table_layout.h"

namespace sluice {
namespace {

// Shards of a table whose number must not follow that of the pservers: enough for the largest
// cluster, few enough that the smallest one has no trouble with them.
constexpr uint32_t kFixedShards = 256;

// Shards of all tables of a job. Each publication of a route names them all, and each event that
// places or moves shards looks at all.
constexpr uint64_t kMaxShardsOfJob = uint64_t{1} << 20;

// Begins every refusal with the table's name.
absl::Status RefuseTable(const TableConfig& table, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("tables: \"", table.name(), "\": ", why));
}

template <typename Named>
std::string Names(const Named& items) {
  return absl::StrJoin(
      items, ", ", [](std::string* out, const auto& item) { absl::StrAppend(out, item.name()); });
}

// An optimizer with a rule replaces the derived one; without a rule it changes the fields it sets.
void OverrideOptimizer(const OptimizerConfig& from, OptimizerConfig* to) {
  if (from.rule_case() != OptimizerConfig::RULE_NOT_SET) {
    *to = WithDefaults(from);
  } else {
    to->MergeFrom(from);
  }
}

// from: the entry of a column group, or one of a table that stands for groups.
template <typename Entry>
void OverrideGroup(const Entry& from, ColumnGroup* to) {
  if (from.has_initializer()) *to->mutable_initializer() = from.initializer();
  if (from.has_optimizer()) OverrideOptimizer(from.optimizer(), to->mutable_optimizer());
}

absl::Status OverrideColumns(const TableConfig& from, TableConfig* to) {
  std::set<std::string> seen;
  for (const ColumnGroup& column : from.columns()) {
    auto found = std::find_if(to->mutable_columns()->begin(), to->mutable_columns()->end(),
                              [&](const ColumnGroup& c) { return c.name() == column.name(); });
    if (found == to->mutable_columns()->end()) {
      return RefuseTable(from, absl::StrCat("has no columns \"", column.name(), "\"; it has ",
                                            Names(to->columns())));
    }
    if (!seen.insert(column.name()).second) {
      return RefuseTable(from,
                         absl::StrCat("columns \"", column.name(), "\" are given twice; keep one"));
    }
    if (column.dim() != 0 && column.dim() != found->dim()) {
      return RefuseTable(from, absl::StrCat("columns \"", column.name(), "\": dim ", column.dim(),
                                            " is not the model's ", found->dim(),
                                            "; change the model, or remove dim here"));
    }
    OverrideGroup(column, &*found);
  }
  return absl::OkStatus();
}

absl::Status OverrideSparse(const TableConfig& from, TableConfig* to) {
  if (from.shape_size() > 0) return RefuseTable(from, "is sparse and has no shape; remove it");
  if (from.has_initializer() || from.has_optimizer()) {
    return RefuseTable(
        from,
        absl::StrCat("is sparse: put initializer and optimizer into columns { name: ... }; it has ",
                     Names(to->columns())));
  }
  if (from.num_shards() != 0) to->set_num_shards(from.num_shards());
  // num_shards, limits and what rows must do to come and stay are the job's alone. A model derives
  // none of them.
  to->set_max_rows(from.max_rows());
  if (from.has_expire()) *to->mutable_expire() = from.expire();
  to->set_max_gib(from.max_gib());
  if (from.has_evict()) *to->mutable_evict() = from.evict();
  if (from.has_admit()) *to->mutable_admit() = from.admit();
  return OverrideColumns(from, to);
}

absl::Status OverrideDense(const TableConfig& from, TableConfig* to) {
  if (from.columns_size() > 0)
    return RefuseTable(from, "is dense and has no columns; use initializer and optimizer");
  if (from.num_shards() != 0)
    return RefuseTable(from, "is dense: num_shards follows from its size; remove it");
  if (from.max_rows() != 0)
    return RefuseTable(from, "is dense and has no rows to limit; remove max_rows");
  if (from.has_expire())
    return RefuseTable(from, "is dense and has no rows that could expire; remove expire");
  for (const char* name : {"max_gib", "evict", "admit"}) {
    const auto* const field = TableConfig::descriptor()->FindFieldByName(name);
    if (from.GetReflection()->HasField(from, field))
      return RefuseTable(from, absl::StrCat("is dense and has no rows; remove ", name));
  }
  const bool same_shape =
      std::equal(from.shape().begin(), from.shape().end(), to->shape().begin(), to->shape().end());
  if (from.shape_size() > 0 && !same_shape) {
    return RefuseTable(
        from, absl::StrCat("shape [", absl::StrJoin(from.shape(), ", "), "] is not the model's [",
                           absl::StrJoin(to->shape(), ", "),
                           "]; change the model, or remove shape here"));
  }
  if (from.has_initializer()) *to->mutable_initializer() = from.initializer();
  if (from.has_optimizer()) OverrideOptimizer(from.optimizer(), to->mutable_optimizer());
  return absl::OkStatus();
}

absl::Status OverrideUpdateAt(const TableConfig& from, Mode mode, TableConfig* to) {
  switch (from.update_at()) {
    case TableConfig::COLLECTIVE:
      if (mode != Mode::kSync) {
        return RefuseTable(
            from, absl::StrCat("update_at COLLECTIVE needs sync, and this job is ", ModeName(mode),
                               "; give --a_sync=false, or remove update_at"));
      }
      if (to->kind() == TableConfig::SPARSE) {
        return RefuseTable(
            from,
            "is sparse, and workers keep only dense tables (update_at COLLECTIVE); remove "
            "update_at");
      }
      to->set_update_at(TableConfig::COLLECTIVE);
      return absl::OkStatus();
    case TableConfig::WORKER:
      if (mode == Mode::kGeo) return absl::OkStatus();
      return RefuseTable(
          from, absl::StrCat("update_at WORKER needs Geo, and this job is ", ModeName(mode),
                             "; set strategy.a_sync_configs.k_steps, or remove update_at"));
    default:
      if (mode == Mode::kGeo)
        return RefuseTable(from,
                           "update_at PSERVER contradicts Geo, where workers update; remove it");
      to->clear_update_at();
      return absl::OkStatus();
  }
}

absl::Status OverrideTable(const TableConfig& from, Mode mode, TableConfig* to) {
  if (from.has_start()) {
    return RefuseTable(from,
                       "start follows from initial_model or initial_checkpoint; remove it here");
  }
  if (from.kind() != TableConfig::KIND_UNSPECIFIED && from.kind() != to->kind()) {
    return RefuseTable(
        from, absl::StrCat("kind ", TableConfig::Kind_Name(from.kind()), " is not the model's ",
                           TableConfig::Kind_Name(to->kind()), "; remove kind here"));
  }
  if (from.has_update_at()) SLUICE_RETURN_IF_ERROR(OverrideUpdateAt(from, mode, to));
  if (from.wire_type() == TableConfig::BF16 && mode == Mode::kGeo) {
    return RefuseTable(from, "wire_type BF16 is too coarse for Geo's deltas; use F32");
  }
  to->set_wire_type(from.wire_type());
  return to->kind() == TableConfig::SPARSE ? OverrideSparse(from, to) : OverrideDense(from, to);
}

TableConfig* FindByName(const std::string& name, std::vector<TableConfig>* tables) {
  const auto found = std::find_if(tables->begin(), tables->end(),
                                  [&](const TableConfig& table) { return table.name() == name; });
  return found == tables->end() ? nullptr : &*found;
}

// The column groups of this name in all sparse tables, if there are several tables. The columns of
// a single one are overridden in its own entry.
std::vector<ColumnGroup*> FindGroups(const std::string& name, std::vector<TableConfig>* tables) {
  std::vector<ColumnGroup*> groups;
  int sparse = 0;
  for (TableConfig& table : *tables) {
    sparse += table.kind() == TableConfig::SPARSE;
    for (ColumnGroup& group : *table.mutable_columns())
      if (group.name() == name) groups.push_back(&group);
  }
  return sparse > 1 ? groups : std::vector<ColumnGroup*>();
}

// Refuses fields that only a table has.
absl::Status CheckGroupOverride(const TableConfig& from, const std::vector<TableConfig>& tables) {
  TableConfig others = from;
  others.clear_name();
  others.clear_initializer();
  others.clear_optimizer();
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  others.GetReflection()->ListFields(others, &fields);
  if (fields.empty()) return absl::OkStatus();
  return RefuseTable(
      from, absl::StrCat("is a column group of several sparse tables, and ", fields.front()->name(),
                         " belongs to a table; it takes initializer and optimizer. "
                         "Name a table; the model has ",
                         Names(tables)));
}

// An entry names a table, or else a column group of several sparse tables.
absl::Status OverrideTables(const JobConfig& job, std::vector<TableConfig>* tables) {
  std::set<std::string> seen;
  const auto override_table = [&](const TableConfig& from) {
    TableConfig* const table = FindByName(from.name(), tables);
    // Two entries for one table could contradict each other.
    if (!seen.insert(from.name()).second) return RefuseTable(from, "is given twice; keep one");
    return table == nullptr ? absl::OkStatus() : OverrideTable(from, ModeOf(job.strategy()), table);
  };
  const auto override_groups = [&](const TableConfig& from) {
    if (FindByName(from.name(), tables) != nullptr) return absl::OkStatus();
    const std::vector<ColumnGroup*> groups = FindGroups(from.name(), tables);
    if (groups.empty()) {
      return RefuseTable(from,
                         absl::StrCat("the model has no such table; it has ", Names(*tables)));
    }
    SLUICE_RETURN_IF_ERROR(CheckGroupOverride(from, *tables));
    for (ColumnGroup* group : groups) OverrideGroup(from, group);
    return absl::OkStatus();
  };
  const auto for_each = [&](const auto& override_one) -> absl::Status {
    for (int i = 0; i < job.tables_size(); ++i) {
      SLUICE_RETURN_IF_ERROR(AtField(absl::StrCat("tables[", i, "]"), override_one(job.tables(i))));
    }
    return absl::OkStatus();
  };
  // What an entry says of a single table wins over what another one says of a group in all of them.
  SLUICE_RETURN_IF_ERROR(for_each(override_groups));
  return for_each(override_table);
}

// Applies sync_configs.dense, which tables { update_at } may then change for single tables. What a
// program has frozen stays on pservers where the job has others there: workers would exchange
// zeros.
void KeepDenseTablesOnWorkers(const JobConfig& job, std::vector<TableConfig>* tables) {
  const auto is_frozen = [](const TableConfig& table) {
    return table.kind() == TableConfig::DENSE && IsFrozen(table.optimizer());
  };
  bool sparse = false, trained = false;
  for (const TableConfig& table : *tables) {
    if (table.kind() == TableConfig::SPARSE) sparse = true;
    if (table.kind() == TableConfig::DENSE && !is_frozen(table)) trained = true;
  }
  const bool leave_frozen = job.model().has_program() && sparse && trained;
  for (TableConfig& table : *tables) {
    if (table.kind() == TableConfig::DENSE && !(leave_frozen && is_frozen(table)))
      table.set_update_at(TableConfig::COLLECTIVE);
  }
}

bool IsOnWorkers(const TableConfig& table) { return table.update_at() == TableConfig::COLLECTIVE; }

// A job that only evaluates pulls all tables if it has to pull any: its workers reduce nothing.
void PullAllOrNone(std::vector<TableConfig>* tables) {
  if (std::all_of(tables->begin(), tables->end(), IsOnWorkers)) return;
  for (TableConfig& table : *tables)
    if (IsOnWorkers(table)) table.clear_update_at();
}

// Refuses dense: COLLECTIVE that the overrides leave without effect.
absl::Status CheckCollective(const JobConfig& job, const std::vector<TableConfig>& tables) {
  const bool any_dense = std::any_of(tables.begin(), tables.end(), [](const TableConfig& table) {
    return table.kind() == TableConfig::DENSE;
  });
  if (job.strategy().sync_configs().dense() != SyncConfigs::COLLECTIVE || !any_dense ||
      std::any_of(tables.begin(), tables.end(), IsOnWorkers)) {
    return absl::OkStatus();
  }
  const char* const path = "strategy.sync_configs.dense";
  return AtField(
      path, absl::InvalidArgumentError(absl::StrCat(
                path, ": COLLECTIVE contradicts update_at: PSERVER of every dense table; remove ",
                "it, or remove update_at of the tables that the workers shall keep")));
}

// REQUIRES: num_shards of a sparse table is set.
absl::Status CheckRowLimit(const TableConfig& table) {
  constexpr double kGiB = 1 << 30;
  if (table.max_rows() == 0 && table.max_gib() == 0) return absl::OkStatus();
  SLUICE_ASSIGN_OR_RETURN(const auto layout, TableLayout::Create(/*id=*/0, table, /*seed=*/0));
  const uint64_t shards = table.num_shards(), limit = layout->row_limit();
  // A shard that may have no row would fail the job with its first one, or drop each at the end of
  // the step that created it (evict).
  if (limit >= shards) return absl::OkStatus();
  const double least_gib = static_cast<double>(shards * layout->most_row_bytes()) / kGiB;
  return RefuseTable(
      table,
      absl::StrCat(
          "its limit is ", limit, " rows, and each of its ", shards,
          " shards needs one at least; raise ",
          table.max_rows() > 0 ? absl::StrCat("max_rows to ", shards)
                               : absl::StrCat("max_gib to ", std::ceil(least_gib * 1e6) / 1e6),
          " or more",
          HasFixedShards(table) ? "" : absl::StrCat(", or set num_shards to ", limit, " or less")));
}

// Implements `lr_scale: WORKERS`.
void ScaleLearningRates(const JobConfig& job, std::vector<TableConfig>* tables) {
  if (job.optimizers().lr_scale() != OptimizersConfig::WORKERS) return;
  // One worker where the job does not say, so that the scale is 1.
  const float workers = job.has_worker_num() ? static_cast<float>(job.worker_num()) : 1.0f;
  const auto scale = [workers](OptimizerConfig* o) {
    o->set_learning_rate(o->learning_rate() * workers);
    // A schedule that ends at a rate of its own would otherwise fall further than for one worker.
    if (!o->has_schedule()) return;
    LearningRateSchedule* const schedule = o->mutable_schedule();
    const auto scale_end = [workers](auto* kind) { kind->set_end(kind->end() * workers); };
    if (schedule->has_polynomial()) scale_end(schedule->mutable_polynomial());
    if (schedule->has_cosine()) scale_end(schedule->mutable_cosine());
    if (schedule->has_cosine_restarts()) scale_end(schedule->mutable_cosine_restarts());
  };
  for (TableConfig& table : *tables) {
    if (table.kind() == TableConfig::DENSE) scale(table.mutable_optimizer());
    for (ColumnGroup& column : *table.mutable_columns()) scale(column.mutable_optimizer());
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelSpec>> ModelSpec::Create(const JobConfig& job,
                                                             const ModelList& models) {
  SLUICE_ASSIGN_OR_RETURN(const ModelEntry* const entry, models.Find(job.model()));
  return entry->create_spec(job);
}

absl::Status CheckComputeType(const JobConfig& job, bool on_cpu) {
  const TrainConfig::ComputeType type = job.train().compute_dtype();
  const bool cuda_only = type == TrainConfig::TF32 || type == TrainConfig::FP16;
  // Evaluation always computes in float32, so compute_dtype is ignored.
  if (!on_cpu || !cuda_only || job.evaluate_only()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "train.compute_dtype: ", TrainConfig::ComputeType_Name(type),
      " needs a CUDA device, but a worker of this job computes on the CPU; give F32 or BF16, or "
      "give every worker a GPU (sluice launch --gpus=LIST, sluice-worker --device=cuda)"));
}

bool HasFixedShards(const TableConfig& table) {
  return table.has_expire() || table.has_evict() || table.has_admit();
}

absl::Status FixShards(const Manifest* checkpoint, std::vector<TableConfig>* tables) {
  for (TableConfig& table : *tables) {
    if (table.kind() != TableConfig::SPARSE || !HasFixedShards(table)) continue;
    uint32_t shards = kFixedShards;
    std::string of = "a table with expire, evict or admit";
    if (checkpoint != nullptr) {
      const TableConfig* const saved = StartOf(*checkpoint, table);
      if (saved != nullptr && saved->num_shards() != 0) {
        shards = saved->num_shards();
        of = "the checkpoint from which the job starts";
      }
    }
    if (table.num_shards() != 0 && table.num_shards() != shards) {
      return RefuseTable(table, absl::StrCat("num_shards is ", table.num_shards(), ", but ", of,
                                             " has ", shards, "; remove num_shards"));
    }
    table.set_num_shards(shards);
    SLUICE_RETURN_IF_ERROR(CheckRowLimit(table));
  }
  return absl::OkStatus();
}

void ResolveShards(uint32_t num_pservers, google::protobuf::RepeatedPtrField<TableConfig>* tables) {
  for (TableConfig& table : *tables) {
    if (table.kind() == TableConfig::SPARSE && table.num_shards() == 0) {
      // Several shards a pserver, so that they can be spread evenly also over another number of
      // pservers.
      table.set_num_shards(HasFixedShards(table) ? kFixedShards
                                                 : std::max<uint32_t>(4 * num_pservers, 16));
    }
  }
}

absl::Status CheckShards(const JobConfig& job, const std::vector<TableConfig>& tables,
                         uint32_t num_pservers) {
  google::protobuf::RepeatedPtrField<TableConfig> resolved(tables.begin(), tables.end());
  ResolveShards(num_pservers, &resolved);
  SLUICE_ASSIGN_OR_RETURN(const TableLayouts layouts,
                          CreateTableLayouts(resolved, job.train().seed()));
  uint64_t shards = 0;
  for (const auto& layout : layouts) {
    // FixShards, which knows how many shards the checkpoint has, checks the others.
    if (!HasFixedShards(layout->config())) SLUICE_RETURN_IF_ERROR(CheckRowLimit(layout->config()));
    shards += layout->num_shards();
  }
  if (shards <= kMaxShardsOfJob) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the job's ", layouts.size(), " tables have ", shards, " shards (dense tables: one for each ",
      kMaxBlockBytes >> 20, " MiB); a job may have at most ", kMaxShardsOfJob,
      "; make the layers smaller, or set a smaller tables.num_shards"));
}

absl::Status CompleteTables(const JobConfig& job, std::vector<TableConfig>* tables) {
  if (ModeOf(job.strategy()) == Mode::kGeo) {
    for (TableConfig& table : *tables) table.set_update_at(TableConfig::WORKER);
  }
  if (job.strategy().sync_configs().dense() == SyncConfigs::COLLECTIVE)
    KeepDenseTablesOnWorkers(job, tables);
  // After what the strategy says of all tables, since `tables` says it of single ones.
  SLUICE_RETURN_IF_ERROR(OverrideTables(job, tables));
  if (job.evaluate_only()) {
    PullAllOrNone(tables);
  } else {
    SLUICE_RETURN_IF_ERROR(CheckCollective(job, *tables));
  }
  // Last, so that rates which `tables` sets are scaled too.
  ScaleLearningRates(job, tables);
  return absl::OkStatus();
}

}  // namespace sluice
