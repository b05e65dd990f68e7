#include "server/tables/job_opener.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/config/data_day.h"
#include "common/config/job_validation.h"
#include "common/config/mode.h"
#include "common/saved_model/saved_model.h"
#include "common/security/job_passes.h"
#include "common/table/placement.h"
#include "server/checkpoints/model_loader.h"
#include "server/copies/copy_reader.h"
#include "server/shards/buffered_bytes.h"

namespace sluice {
namespace {

UpdatePolicy PolicyOf(const JobSpec& spec) {
  const StrategyConfig& strategy = spec.config().strategy();
  const ASyncConfigs& a_sync = strategy.a_sync_configs();
  UpdatePolicy policy;
  policy.mode = ModeOf(strategy);
  policy.worker_num = spec.worker_num();
  policy.replicated = spec.follower_size() > 0;
  policy.keeps_tombstones = spec.config().has_export_();
  // Validated at submission.
  if (const auto day = ParseDataDay(spec.config().data().day()); day.ok()) policy.day = *day;
  policy.gradients_to_wait = std::max(1u, a_sync.gradients_to_wait());
  policy.merge_scale = a_sync.geo_merge() == ASyncConfigs::SUM ? 1.0 : 1.0 / spec.worker_num();
  if (policy.mode == Mode::kAsync && a_sync.has_max_staleness()) {
    policy.max_staleness = a_sync.max_staleness();
  }
  return policy;
}

// Sets what keys without a row read as. Without updates nothing else of `admit` has an effect, so
// the sketch is as small as it can be.
void KeepAbsentValues(const TableConfig& saved, TableConfig* table) {
  table->clear_admit();
  if (saved.admit().before() == AdmitConfig::INITIAL) return;
  table->mutable_admit()->set_before(saved.admit().before());
  table->mutable_admit()->set_sketch_kib(1);
}

// The tables of the job, and the seed of their initial values. A job that only evaluates a model
// takes both from the model. A key that was never trained then has the same values in training,
// evaluation and prediction.
struct InitialTables {
  google::protobuf::RepeatedPtrField<TableConfig> tables;
  uint64_t seed = 0;
};

absl::StatusOr<InitialTables> InitialTablesOf(const JobSpec& spec, Env* env) {
  const JobConfig& config = spec.config();
  InitialTables initial{spec.tables(), config.train().seed()};
  if (!config.evaluate_only() || config.initial_model().empty()) return initial;
  SLUICE_ASSIGN_OR_RETURN(const JobConfig trained, ReadModelJob(config.initial_model(), env));
  SLUICE_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(config.initial_model(), env));
  initial.seed = trained.train().seed();
  for (TableConfig& table : initial.tables) {
    for (const TableConfig& saved : manifest.tables()) {
      if (saved.name() != table.name()) continue;
      if (saved.has_initializer()) *table.mutable_initializer() = saved.initializer();
      KeepAbsentValues(saved, &table);
      // ModelLoader refuses columns that differ.
      const int columns = std::min(table.columns_size(), saved.columns_size());
      for (int c = 0; c < columns; ++c) {
        *table.mutable_columns(c)->mutable_initializer() = saved.columns(c).initializer();
      }
    }
  }
  return initial;
}

uint32_t LoadThreads(const JobResources& resources) {
  constexpr uint32_t kMost = 4;
  if (resources.load_threads > 0) return resources.load_threads;
  return std::clamp(std::thread::hardware_concurrency(), 1u, kMost);
}

std::string Mib(uint64_t bytes) { return absl::StrFormat("%.1f MiB", bytes / 1048576.0); }

// This pserver keeps a copy of the shards of the pserver before it in the route.
bool KeepsCopyOf(int64_t owner, const JobSpec& spec, int64_t self, const UpdatePolicy& policy) {
  return policy.replicated && (owner + 1) % std::max(1, spec.route().pservers_size()) == self;
}

// The dense shards of this pserver and its copies of another's.
struct DenseShards {
  uint64_t bytes = 0;  // of values and optimizer state
  uint64_t elements = 0;
  uint64_t copies = 0;  // bytes, of `bytes`
  uint64_t most = 0;    // bytes, of table `name`
  std::string name;
};

DenseShards DenseShardsOf(const JobSpec& spec, const TableLayouts& layouts, int64_t self,
                          const UpdatePolicy& policy) {
  DenseShards dense;
  for (size_t t = 0; t < layouts.size(); ++t) {
    if (layouts[t]->sparse()) continue;
    uint64_t bytes = 0;
    for (uint32_t s = 0; s < layouts[t]->num_shards(); ++s) {
      const auto owner =
          static_cast<int64_t>(spec.route().tables(static_cast<int>(t)).owner(static_cast<int>(s)));
      const bool mine = owner == self;
      if (!mine && !KeepsCopyOf(owner, spec, self, policy)) continue;
      bytes += layouts[t]->ShardBytes(s);
      dense.elements += layouts[t]->ShardElements(s);
      if (!mine) dense.copies += layouts[t]->ShardBytes(s);
    }
    dense.bytes += bytes;
    if (bytes <= dense.most) continue;
    dense.most = bytes;
    dense.name = layouts[t]->name();
  }
  return dense;
}

// The state that the shards of this pserver, and its copies of another's, keep for the job's ranks.
struct RankState {
  uint64_t shards = 0;
  uint64_t bytes = 0;
};

RankState RankStateOf(const JobSpec& spec, int64_t self, const UpdatePolicy& policy) {
  RankState state;
  for (const TableRoute& table : spec.route().tables()) {
    for (const uint32_t owner : table.owner())
      state.shards += owner == self || KeepsCopyOf(owner, spec, self, policy);
  }
  state.bytes = state.shards * Shard::RankStateBytes(policy);
  return state;
}

// Bytes of the sketches of the shards of this pserver, and its copies of another's, in tables with
// admit. Each is counted twice, because a cut has a copy of it.
uint64_t SketchBytesOf(const JobSpec& spec, const TableLayouts& layouts, int64_t self,
                       const UpdatePolicy& policy) {
  uint64_t bytes = 0;
  for (size_t t = 0; t < layouts.size(); ++t) {
    if (!layouts[t]->config().has_admit()) continue;
    for (const uint32_t owner : spec.route().tables(static_cast<int>(t)).owner()) {
      if (owner == self || KeepsCopyOf(owner, spec, self, policy))
        bytes += 2 * layouts[t]->sketch_bytes();
    }
  }
  return bytes;
}

// RESOURCE_EXHAUSTED: what the route gives to `self` needs more than `available`:
// - dense shards, with what buffers their updates: in sync the gradients of all workers, which a
//   step keeps until it closes; in async with gradients_to_wait the sum of them, in float64, and
//   their mean;
// - the state that every shard keeps for each rank;
// - the sketches of tables with admit;
// - the gradients that a step of sync buffers for sparse tables, with the most keys that the job's
//   features can have in its batches.
// With replicas they include the copies that this pserver keeps. Rows of sparse tables do not
// count: how many there are is only known from the data.
absl::Status CheckMemory(const JobSpec& spec, const TableLayouts& layouts, int64_t self,
                         const UpdatePolicy& policy, uint64_t available) {
  const DenseShards dense = DenseShardsOf(spec, layouts, self, policy);
  const RankState ranks = RankStateOf(spec, self, policy);
  uint64_t buffers = 0;
  std::string what;
  SparseBuffers sparse;
  if (policy.mode == Mode::kSync) {
    sparse = SparseBuffersOf(spec, layouts, self);
    buffers = policy.worker_num * dense.elements * sizeof(float);
    what = absl::StrCat("the gradients that a step of ", policy.worker_num, " workers buffers");
  } else if (policy.mode == Mode::kAsync && policy.gradients_to_wait > 1) {
    buffers = dense.elements * (sizeof(double) + sizeof(float));
    what = "the sums of gradients_to_wait";
  }
  const uint64_t of_dense = dense.bytes + buffers;
  const uint64_t sketches = SketchBytesOf(spec, layouts, self, policy);
  const uint64_t needed = of_dense + sparse.bytes + ranks.bytes + sketches;
  if (needed <= available) return absl::OkStatus();
  const std::string have = absl::StrCat("; ", Mib(available), " are available (MemAvailable); ");
  if (sketches > std::max({of_dense, sparse.bytes, ranks.bytes})) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the sketches of tables with admit, and their copies in a checkpoint, need ", Mib(sketches),
        " on this pserver, and the rest of the job needs ", Mib(needed - sketches), have,
        "lower admit.sketch_kib, or use more pservers or a machine with more memory"));
  }
  if (ranks.bytes > std::max(of_dense, sparse.bytes)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the ", ranks.shards, " shards of the job on this pserver need ", Mib(ranks.bytes),
        " for the state of ", policy.worker_num, " workers, and ", Mib(needed - ranks.bytes),
        " for dense tables and buffered gradients", have,
        "give tables fewer shards (tables.num_shards), use fewer workers, more pservers, or a "
        "machine with more memory"));
  }
  if (sparse.bytes > of_dense) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a step of ", policy.worker_num, " workers may buffer ", Mib(sparse.bytes),
        " of gradients for sparse tables on this pserver (", Mib(sparse.most), " of it for table '",
        sparse.name, "'), and dense tables and the state of workers need ",
        Mib(needed - sparse.bytes), have,
        "make train.batch_size smaller, give features fewer keys (hash_buckets), use more "
        "pservers, fewer workers, or a machine with more memory"));
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "the job's dense tables need ", Mib(of_dense), " on this pserver: ", Mib(dense.bytes),
      " for values and optimizer state (", Mib(dense.most), " of it for table '", dense.name, "'",
      dense.copies == 0
          ? ""
          : absl::StrCat(", and ", Mib(dense.copies), " for the copies of another pserver"),
      ")", buffers == 0 ? "" : absl::StrCat(" and ", Mib(buffers), " for ", what),
      sparse.bytes == 0
          ? ""
          : absl::StrCat(", and up to ", Mib(sparse.bytes),
                         " for the gradients of sparse tables, such as '", sparse.name, "'"),
      // It is small in most jobs.
      ranks.bytes < 1 << 20 ? ""
                            : absl::StrCat(", and ", Mib(ranks.bytes), " for the state of workers"),
      have, "make that table smaller, use more pservers, ",
      policy.mode == Mode::kSync ? "fewer workers, " : "", "or a machine with more memory"));
}

// REQUIRES: ReadsCopies. The spec need not have passed CheckMembers: a job is also described before
// it is opened.
PserverAddress FollowerOf(const JobSpec& spec, const std::string& address) {
  const uint32_t follower = spec.follower(static_cast<int>(OwnerIndex(spec.route(), address)));
  if (follower >= static_cast<uint32_t>(spec.route().pservers_size()))
    return absl::StrCat("pserver ", follower, ", which is not in the route");
  return PserverAt(spec.route(), follower);
}

absl::Status InitialModelError(const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("initial_model: ", status.message()));
}

// The shards continue from a checkpoint of this instance of the job.
bool FromOwnCheckpoint(const JobSpec& spec) { return !spec.takeover().checkpoint().empty(); }

bool IsNewJob(const JobSpec& spec) { return spec.restore().kind() == Restore::INITIAL; }

absl::Status LoadError(const JobSpec& spec, const absl::Status& status) {
  if (FromOwnCheckpoint(spec)) {
    return absl::Status(status.code(),
                        absl::StrCat("cannot restore shards from checkpoint ",
                                     spec.takeover().checkpoint(), ": ", status.message()));
  }
  if (!spec.has_restore()) return InitialModelError(status);
  if (IsNewJob(spec)) {
    return absl::Status(status.code(), absl::StrCat("initial_checkpoint: ", status.message()));
  }
  return absl::Status(status.code(),
                      absl::StrCat("cannot resume from checkpoint ", spec.restore().directory(),
                                   ": ", status.message(),
                                   absl::IsDataLoss(status)
                                       ? "; --allow_older resumes from the newest intact checkpoint"
                                       : ""));
}

absl::Status LoadTables(const JobSpec& spec, const JobResources& resources, LoadProgress* progress,
                        OpenedJob* job) {
  ModelLoader::Options options;
  options.directory = spec.config().initial_model();
  if (FromOwnCheckpoint(spec)) {
    options.directory = spec.takeover().checkpoint();
    options.state = options.same_instance = true;
  } else if (spec.has_restore()) {
    options.directory = spec.restore().directory();
    options.state = true;
    options.new_job = IsNewJob(spec);
    // Files of another step would mix two states of the model.
    if (!options.new_job && job->policy.mode == Mode::kSync)
      options.step = job->closed = spec.restore().step();
  }
  options.threads = LoadThreads(resources);
  options.env = resources.env;
  options.available_memory = resources.available_memory;
  options.progress = progress;
  const absl::Status loaded =
      ModelLoader(std::move(options), job->layouts, &job->view->shards).Load();
  return loaded.ok() ? loaded : LoadError(spec, loaded);
}

}  // namespace

bool ReadsCopies(const JobSpec& spec, const std::string& address) {
  const int64_t self = OwnerIndex(spec.route(), address);
  if (!spec.has_takeover() || self < 0 || self >= spec.follower_size()) return false;
  return spec.follower(static_cast<int>(self)) != self;
}

bool HasTablesToLoad(const JobSpec& spec, const std::string& address) {
  return ReadsCopies(spec, address) || FromOwnCheckpoint(spec) || spec.has_restore() ||
         !spec.config().initial_model().empty();
}

std::string SourceOfTables(const JobSpec& spec, const std::string& address) {
  if (ReadsCopies(spec, address)) {
    return absl::StrCat("the copies of the lost shards at ", FollowerOf(spec, address).address);
  }
  if (FromOwnCheckpoint(spec)) return absl::StrCat("checkpoint ", spec.takeover().checkpoint());
  if (!spec.has_restore()) return absl::StrCat("initial_model ", spec.config().initial_model());
  return absl::StrCat(IsNewJob(spec) ? "initial_checkpoint " : "checkpoint ",
                      spec.restore().directory());
}

absl::Status CheckMembers(const JobSpec& spec, size_t workers) {
  const auto lives = static_cast<size_t>(spec.incarnations_size());
  if (lives != 0 && lives != workers) {
    return absl::InvalidArgumentError(absl::StrCat("job ", spec.job_id(), " has ", workers,
                                                   " ranks, but incarnations of ", lives));
  }
  const int pservers = spec.route().pservers_size();
  if (spec.follower_size() == 0) return absl::OkStatus();
  if (spec.follower_size() != pservers) {
    return absl::InvalidArgumentError(absl::StrCat("job ", spec.job_id(), " has ", pservers,
                                                   " pservers, but followers of ",
                                                   spec.follower_size()));
  }
  for (int i = 0; i < pservers; ++i) {
    if (spec.follower(i) < static_cast<uint32_t>(pservers)) continue;
    return absl::InvalidArgumentError(absl::StrCat("job ", spec.job_id(), " names pserver ",
                                                   spec.follower(i), " as the follower of pserver ",
                                                   i, "; the route has ", pservers));
  }
  return absl::OkStatus();
}

absl::StatusOr<OpenedJob> OpenJob(const JobSpec& spec, const std::string& address,
                                  const JobResources& resources, LoadProgress* progress) {
  if (spec.worker_num() == 0) {
    return absl::InvalidArgumentError(absl::StrCat("job ", spec.job_id(), " has no workers"));
  }
  if (spec.has_takeover() && spec.incarnations_size() != static_cast<int>(spec.worker_num())) {
    return absl::InvalidArgumentError(
        absl::StrCat("job ", spec.job_id(), " names the lives of ", spec.incarnations_size(),
                     " ranks, but shards that are taken over await all ", spec.worker_num()));
  }
  if (spec.worker_num() > kMaxWorkers) {
    return absl::InvalidArgumentError(absl::StrCat(
        "job ", spec.job_id(), " has ", spec.worker_num(), " workers; the limit is ", kMaxWorkers));
  }
  SLUICE_RETURN_IF_ERROR(CheckMembers(spec, spec.worker_num()));
  const auto initial = InitialTablesOf(spec, resources.env);
  if (!initial.ok()) return InitialModelError(initial.status());
  OpenedJob job;
  job.policy = PolicyOf(spec);
  SLUICE_ASSIGN_OR_RETURN(job.layouts, CreateTableLayouts(initial->tables, initial->seed));
  SLUICE_RETURN_IF_ERROR(ValidateRoute(spec.route(), job.layouts));
  // Before anything is allocated: a job that does not fit must not drive the process, which also
  // serves other jobs, into the kernel's out-of-memory killer.
  const uint64_t available = resources.available_memory();
  const int64_t self = OwnerIndex(spec.route(), address);
  SLUICE_RETURN_IF_ERROR(CheckMemory(spec, job.layouts, self, job.policy, available));
  ShardLimits limits;
  limits.row_memory = resources.row_memory;
  if (GradientsWait(job.policy)) {
    limits.buffers = std::make_shared<BufferBudget>(
        spec.worker_num(), MostBufferedOfRank(spec, job.layouts, self, job.policy, available));
  }
  job.view = FirstView(job.layouts, job.policy, spec.route(), address, limits);
  if (ReadsCopies(spec, address)) {
    CopyReader::Options options;
    options.transport = resources.replica_transport;
    options.follower = FollowerOf(spec, address);
    options.job_id = spec.job_id();
    options.instance = spec.instance();
    options.pserver = static_cast<uint32_t>(OwnerIndex(spec.route(), address));
    options.pass = JobPasses(spec.pass_key()).OfPserver(options.pserver);
    options.generation = spec.route().generation();
    options.progress = progress;
    SLUICE_RETURN_IF_ERROR(CopyReader(std::move(options), *job.view).Read());
  } else if (HasTablesToLoad(spec, address)) {
    SLUICE_RETURN_IF_ERROR(LoadTables(spec, resources, progress, &job));
  }
  // After the shards have their contents: AwaitRanks compares these with what was acknowledged to
  // lives that have ended.
  if (spec.has_takeover()) {
    const std::vector<uint64_t> lives(spec.incarnations().begin(), spec.incarnations().end());
    job.view->ForEachShard(
        [&](Shard* shard) { shard->AwaitRanks(lives, spec.takeover().ended()); });
  }
  return job;
}

}  // namespace sluice
