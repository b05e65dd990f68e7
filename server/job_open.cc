// A job's life around the requests: opening its shards, loading a saved model, reporting, saving.
#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/saved_model/saved_model.h"
#include "server/job_tables.h"
#include "server/model_loader.h"

namespace sluice {
namespace {

// -1: none of this route is here.
int IndexOf(const Route& route, const std::string& address) {
  const auto at = std::find(route.pservers().begin(), route.pservers().end(), address);
  return at == route.pservers().end() ? -1 : static_cast<int>(at - route.pservers().begin());
}

absl::Status CheckRoute(const TableLayouts& layouts, const Route& route) {
  if (route.tables_size() != static_cast<int>(layouts.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("route has ", route.tables_size(), " tables, the job ", layouts.size()));
  }
  for (size_t t = 0; t < layouts.size(); ++t) {
    if (route.tables(t).owner_size() == static_cast<int>(layouts[t]->num_shards())) continue;
    return absl::InvalidArgumentError(absl::StrCat("route has ", route.tables(t).owner_size(),
                                                   " shards of table '", layouts[t]->name(),
                                                   "', which has ", layouts[t]->num_shards()));
  }
  return absl::OkStatus();
}

UpdatePolicy PolicyOf(const JobSpec& spec) {
  const StrategyConfig& strategy = spec.config().strategy();
  const ASyncConfigs& a_sync = strategy.a_sync_configs();
  UpdatePolicy policy;
  policy.mode = ModeOf(strategy);
  policy.worker_num = spec.worker_num();
  policy.gradients_to_wait = std::max(1u, a_sync.gradients_to_wait());
  policy.merge_scale = a_sync.geo_merge() == ASyncConfigs::SUM ? 1.0 : 1.0 / spec.worker_num();
  return policy;
}

std::optional<uint64_t> MaxStaleness(const JobSpec& spec) {
  const StrategyConfig& strategy = spec.config().strategy();
  if (ModeOf(strategy) != Mode::kAsync || !strategy.a_sync_configs().has_max_staleness()) {
    return std::nullopt;
  }
  return strategy.a_sync_configs().max_staleness();
}

// The tables of the job, and the seed of their initial values. A job that only evaluates a model
// has the model's own: a key that was never trained is the same in training, evaluation and
// prediction.
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
      // Columns that differ are refused when the model is loaded.
      const int columns = std::min(table.columns_size(), saved.columns_size());
      for (int c = 0; c < columns; ++c) {
        *table.mutable_columns(c)->mutable_initializer() = saved.columns(c).initializer();
      }
    }
  }
  return initial;
}

uint32_t LoadThreads(const JobLimits& limits) {
  constexpr uint32_t kMost = 4;
  if (limits.load_threads > 0) return limits.load_threads;
  return std::clamp(std::thread::hardware_concurrency(), 1u, kMost);
}

std::string Mib(uint64_t bytes) { return absl::StrFormat("%.1f MiB", bytes / 1048576.0); }

// The dense shards that the route gives to `self` fit in the memory that is left.
absl::Status CheckMemory(const TableLayouts& layouts, const Route& route, int self,
                         uint64_t available) {
  uint64_t all = 0, most = 0;
  std::string name;
  for (size_t t = 0; t < layouts.size(); ++t) {
    if (layouts[t]->sparse()) continue;
    uint64_t bytes = 0;
    for (uint32_t s = 0; s < layouts[t]->num_shards(); ++s) {
      if (static_cast<int64_t>(route.tables(t).owner(s)) != self) continue;
      bytes += layouts[t]->ShardBytes(s);
    }
    all += bytes;
    if (bytes <= most) continue;
    most = bytes;
    name = layouts[t]->name();
  }
  if (all <= available) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the job's dense tables need ", Mib(all), " on this pserver, ", Mib(most),
                   " of it for table '", name, "', and ", Mib(available),
                   " are available (MemAvailable); make that table smaller, use more pservers, or "
                   "a machine with "
                   "more memory"));
}

}  // namespace

JobTables::JobTables(const JobSpec& spec, TableLayouts layouts, const UpdatePolicy& policy,
                     Clock* clock, const JobLimits& limits)
    : job_id_(spec.job_id()),
      instance_(spec.instance()),
      layouts_(std::move(layouts)),
      policy_(policy),
      clock_(clock),
      limits_(limits),
      trace_(MakeTraceRecorder(spec)),
      frames_(policy.worker_num, policy.mode == Mode::kSync),
      staleness_(policy.worker_num, MaxStaleness(spec)),
      barrier_(policy.worker_num),
      epochs_ended_(policy.worker_num) {}

absl::StatusOr<std::shared_ptr<JobTables>> JobTables::Open(const JobSpec& spec,
                                                           const std::string& address, Clock* clock,
                                                           const JobLimits& limits,
                                                           LoadProgress* progress) {
  if (spec.worker_num() == 0) {
    return absl::InvalidArgumentError(absl::StrCat("job ", spec.job_id(), " has no workers"));
  }
  auto initial = InitialTablesOf(spec, limits.env);
  if (!initial.ok()) {
    return absl::Status(initial.status().code(),
                        absl::StrCat("initial_model: ", initial.status().message()));
  }
  SLUICE_ASSIGN_OR_RETURN(TableLayouts layouts, CreateTableLayouts(initial->tables, initial->seed));
  SLUICE_RETURN_IF_ERROR(CheckRoute(layouts, spec.route()));
  SLUICE_RETURN_IF_ERROR(CheckMemory(layouts, spec.route(), IndexOf(spec.route(), address),
                                     limits.available_memory()));
  std::shared_ptr<JobTables> job(
      new JobTables(spec, std::move(layouts), PolicyOf(spec), clock, limits));
  job->OpenShards(spec.route(), address);
  if (!spec.config().initial_model().empty()) {
    LoadProgress unseen;
    ModelLoader::Options options;
    options.directory = spec.config().initial_model();
    options.threads = LoadThreads(limits);
    options.env = limits.env;
    options.available_memory = limits.available_memory;
    options.progress = progress == nullptr ? &unseen : progress;
    const absl::Status loaded =
        ModelLoader(std::move(options), job->layouts_, &job->shards_).Load();
    if (!loaded.ok()) {
      return absl::Status(loaded.code(), absl::StrCat("initial_model: ", loaded.message()));
    }
  }
  return job;
}

void JobTables::OpenShards(const Route& route, const std::string& address) {
  address_ = address;
  const int self = IndexOf(route, address);
  shards_.resize(layouts_.size());
  for (size_t t = 0; t < layouts_.size(); ++t) {
    const auto make = layouts_[t]->sparse() ? MakeSparseShard : MakeDenseShard;
    shards_[t].resize(layouts_[t]->num_shards());
    for (uint32_t s = 0; s < layouts_[t]->num_shards(); ++s) {
      if (static_cast<int64_t>(route.tables(t).owner(s)) != self) continue;
      shards_[t][s] = make(layouts_[t], s, policy_);
    }
  }
  MutexLock lock(&mutex_);
  generation_ = route.generation();
}

absl::Status JobTables::UpdateRoute(const Route& route) {
  SLUICE_RETURN_IF_ERROR(CheckRoute(layouts_, route));
  const int self = IndexOf(route, address_);
  for (size_t t = 0; t < layouts_.size(); ++t) {
    for (uint32_t s = 0; s < layouts_[t]->num_shards(); ++s) {
      const bool wanted = static_cast<int64_t>(route.tables(t).owner(s)) == self;
      if (wanted == (shards_[t][s] != nullptr)) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "route generation ", route.generation(), " moves shard ", s, " of table '",
          layouts_[t]->name(), "' ", wanted ? "to" : "from", " pserver ", address_,
          ", but shards of a running job cannot move; cancel the job and submit it again"));
    }
  }
  MutexLock lock(&mutex_);
  generation_ = std::max(generation_, route.generation());
  return absl::OkStatus();
}

uint64_t JobTables::generation() {
  MutexLock lock(&mutex_);
  return generation_;
}

std::string JobTables::WaitingFor() {
  const absl::Time now = clock_->Now();
  if (policy_.mode == Mode::kSync && barrier_.missing() < policy_.worker_num) {
    for (uint32_t r = 0; r < policy_.worker_num; ++r) {
      if (barrier_.committed(r)) continue;
      std::string more =
          barrier_.missing() > 1 ? absl::StrCat(" and ", barrier_.missing() - 1, " more") : "";
      return absl::StrFormat("commit %d of rank %d%s (%.1f s)", barrier_.closed() + 1, r, more,
                             absl::ToDoubleSeconds(now - barrier_.first_commit()));
    }
  }
  const ParkedPull* oldest = nullptr;
  for (const ParkedPull& p : parked_) {
    if (oldest == nullptr || p.since < oldest->since) oldest = &p;
  }
  if (oldest == nullptr || policy_.mode == Mode::kSync) return "";
  const std::optional<uint32_t> slowest = staleness_.Blocking(oldest->caller.rank, oldest->step);
  if (!slowest.has_value()) return "";
  return absl::StrFormat("push %d of rank %d, for max_staleness of rank %d (%.1f s)",
                         staleness_.clock(*slowest) + 1, *slowest, oldest->caller.rank,
                         absl::ToDoubleSeconds(now - oldest->since));
}

HostedJob JobTables::Report() {
  HostedJob report;
  report.set_job_id(job_id_);
  for (size_t t = 0; t < layouts_.size(); ++t) {
    TableStatus* table = report.add_tables();
    table->set_name(layouts_[t]->name());
    table->set_kind(layouts_[t]->config().kind());
    uint64_t shards = 0, rows = 0, bytes = 0, reserved = 0;
    for (const auto& shard : shards_[t]) {
      if (shard == nullptr) continue;
      ++shards;
      rows += shard->rows();
      bytes += shard->bytes();
      reserved += shard->reserved_bytes();
    }
    table->set_shards(shards);
    table->set_rows(rows);
    table->set_bytes(bytes);
    table->set_reserved_bytes(reserved);
    report.set_bytes(report.bytes() + bytes);
    report.set_reserved_bytes(report.reserved_bytes() + reserved);
    if (layouts_[t]->sparse()) {
      report.set_rows(report.rows() + rows);
    } else {
      report.set_dense_elements(report.dense_elements() + rows);
    }
  }
  MutexLock lock(&mutex_);
  report.set_generation(generation_);
  report.set_error(Printable(error_));
  report.set_frames_applied(staleness_.frames());
  if (policy_.mode != Mode::kSync) {
    report.mutable_staleness()->set_pushes(staleness_.frames());
    report.mutable_staleness()->set_sum(staleness_.staleness_sum());
    report.mutable_staleness()->set_max(staleness_.staleness_max());
  } else {
    report.set_slowest_rank(barrier_.slowest_rank());
    report.set_slowest_wait_s(absl::ToDoubleSeconds(barrier_.slowest_wait()));
  }
  report.set_waiting_for(WaitingFor());
  return report;
}

absl::StatusOr<std::vector<SavedFile>> JobTables::SaveShards(const std::string& directory,
                                                             const std::string& save_id) {
  const SpanTimer span(trace_.get(), TraceBatch::SAVE_SHARDS);
  std::vector<SavedFile> files;
  for (size_t t = 0; t < layouts_.size(); ++t) {
    for (const auto& shard : shards_[t]) {
      if (shard == nullptr) continue;
      SLUICE_ASSIGN_OR_RETURN(SavedFile file,
                              WriteShardFile(directory, *layouts_[t], shard->index(),
                                             shard->BeginCut().get(), limits_.env, save_id));
      files.push_back(std::move(file));
    }
  }
  return files;
}

}  // namespace sluice
