// Chooses who keeps the dense tables of a job, by TableConfig.update_at: pservers, its workers, or
// both.
//
// Thread safety: a free function.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "common/collective/collective.h"
#include "common/table/table_layout.h"
#include "model/model.h"
#include "proto/scheduler.pb.h"
#include "worker/dense_tables.h"
#include "worker/rank_group.h"
#include "worker/rank_meetings.h"

namespace sluice {

struct DenseTablesOptions {
  const Model* model = nullptr;   // outlives the tables, as do spec and env
  const JobSpec* spec = nullptr;  // with the tables of the model
  TableLayouts layouts;           // of all tables
  Env* env = nullptr;             // for the files of checkpoints and models
  bool rejoins = false;           // as in CollectiveDenseTables::Options, as is group
  RankGroup::Options group;
  // Makes the engine for tables that workers keep. Called only if there are any. Null: jobs with
  // such tables fail.
  std::function<absl::StatusOr<std::unique_ptr<Collective>>(const JobConfig& config)>
      make_collective;
};

struct JobDenseTables {
  std::unique_ptr<DenseTables> tables;
  // Owned by `tables`. Null when the ranks need not meet: pservers keep all tables, or the job only
  // evaluates.
  RankMeetings* meetings = nullptr;
};

// FAILED_PRECONDITION: the workers keep tables, and there is no engine. Errors of make_collective
// and CollectiveDenseTables::Create.
absl::StatusOr<JobDenseTables> MakeDenseTables(DenseTablesOptions options);

}  // namespace sluice
