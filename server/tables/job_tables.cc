#include "server/tables/job_tables.h"

#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/output_folder.h"
#include "common/daemon/table_rows.h"
#include "common/saved_model/saved_model.h"
#include "server/checkpoints/model_loader.h"

namespace sluice {
namespace {

std::vector<uint64_t> IncarnationsOf(const JobSpec& spec) {
  return {spec.incarnations().begin(), spec.incarnations().end()};
}

// The fields that IsModelSaveId reads: the whole configuration may be large.
JobConfig SavesOf(const JobConfig& job) {
  JobConfig saves;
  saves.mutable_checkpoint()->set_save(job.checkpoint().save());
  saves.mutable_train()->set_epochs(job.train().epochs());
  return saves;
}

}  // namespace

JobTables::JobTables(const JobSpec& spec, const std::string& address, const JobResources& resources,
                     OpenedJob opened)
    : job_id_(spec.job_id()),
      instance_(spec.instance()),
      address_(address),
      // A daemon opens no job without a key (pserver_daemon.cc).
      passes_(spec.pass_key().empty() ? JobPasses::OfNoJob() : JobPasses(spec.pass_key())),
      model_dir_(ModelFolder(spec.config())),
      saves_(SavesOf(spec.config())),
      env_(resources.env),
      layouts_(std::move(opened.layouts)),
      mode_(opened.policy.mode),
      trace_(MakeTraceRecorder(spec, resources.clock)),
      own_writer_(resources.cut_writer == nullptr ? std::make_unique<CutWriter>() : nullptr),
      writer_(resources.cut_writer == nullptr ? own_writer_.get() : resources.cut_writer),
      available_memory_(resources.available_memory),
      ledger_(job_id_, opened.policy, std::move(opened.view), resources.clock, opened.closed),
      cuts_({spec.config().checkpoint().dir(),
             spec.config().has_export_() ? ExportRoot(spec.config()) : "", instance_, writer_, env_,
             resources.clock, available_memory_, resources.on_report_changed,
             [this](const std::string& error) { ledger_.Fail(error); }}),
      copies_(layouts_, opened.policy, resources.on_report_changed, resources.row_memory),
      requests_({job_id_, address_, &passes_, &layouts_, mode_, resources.max_message_bytes,
                 &ledger_, &cuts_, trace_.get(), resources.shard_threads,
                 resources.on_report_changed}) {}

void JobTables::StartReplication(const JobSpec& spec, const JobResources& resources) {
  if (spec.follower_size() == 0) return;
  const int64_t self = OwnerIndex(spec.route(), address_);
  copies_.TakeSpec(spec, self);
  Replicator::Options options;
  options.job_id = job_id_;
  options.instance = instance_;
  if (self >= 0) options.pass = passes_.OfPserver(static_cast<uint32_t>(self));
  options.worker_num = spec.worker_num();
  options.transport = resources.replica_transport;
  options.clock = resources.clock;
  options.writer = writer_;
  options.turn = &seed_turn_;
  options.available_memory = available_memory_;
  options.await_checkpoint = [this] { cuts_.AwaitEnd(); };
  options.may_seed = [this] { return !ledger_.awaits_any(); };
  options.on_change = resources.on_report_changed;
  options.patience = resources.follower_patience;
  const JobLedger::View view = ledger_.view();
  std::vector<std::shared_ptr<Shard>> shards;
  for (const auto& table : view->shards) {
    for (const auto& shard : table) {
      if (shard != nullptr) shards.push_back(shard);
    }
  }
  {
    MutexLock lock(&report_mutex_);
    told_ = view;
  }
  replicator_ = std::make_unique<Replicator>(std::move(options), std::move(shards));
  replicator_->TakeSpec(spec, self);
  requests_.ReplicateTo(replicator_.get());
}

void JobTables::SetCutOrder(const CutOrder& order) {
  TakeCutOrder(order);
  // Rows that went are on their way to the follower. No push may come that would send them.
  if (replicator_ != nullptr && order.has_deletion()) replicator_->Pump();
}

void JobTables::TakeCutOrder(const CutOrder& order) {
  if (mode_ == Mode::kSync && order.commits_size() > 0) {
    // A step that closes now may ask for a checkpoint that is over.
    CutOrder over = order;
    over.clear_now();
    cuts_.SetOrder(over, *ledger_.view());
    for (const LostCommit& lost : order.commits())
      requests_.CommitForLost(lost.rank(), lost.commit());
  }
  // Only a cut that begins needs the turn, and the order comes again with each answer of the
  // scheduler.
  if (order.now() <= cuts_.newest()) return cuts_.SetOrder(order, *ledger_.view());
  const SeedTurn::Claim claim(&seed_turn_, /*patient=*/false);
  if (claim.granted()) return cuts_.SetOrder(order, *ledger_.view(), CanCutAfter(order.step()));
  // This thread also reports to the scheduler, so it must not wait for a whole image.
  CutOrder later = order;
  later.clear_now();
  cuts_.SetOrder(later, *ledger_.view());
}

absl::StatusOr<std::shared_ptr<JobTables>> JobTables::Open(const JobSpec& spec,
                                                           const std::string& address,
                                                           const JobResources& resources,
                                                           LoadProgress* progress) {
  LoadProgress unseen;
  SLUICE_ASSIGN_OR_RETURN(OpenedJob opened,
                          OpenJob(spec, address, resources, progress ? progress : &unseen));
  std::shared_ptr<JobTables> job(new JobTables(spec, address, resources, std::move(opened)));
  // Lives that are over must not speak here either.
  if (spec.incarnations_size() > 0) job->ledger_.Fence(IncarnationsOf(spec));
  bool has_shards = false;
  job->ledger_.view()->ForEachShard([&](Shard*) { has_shards = true; });
  // Ranks do not speak to a pserver without shards.
  if (spec.has_takeover() && has_shards) job->ledger_.AwaitRanks();
  // Last: its thread may make images at once, unless ranks are awaited.
  job->StartReplication(spec, resources);
  return job;
}

absl::Status JobTables::CanCutAfter(uint64_t step) {
  if (mode_ != Mode::kSync || ledger_.closed_step() == step) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the cut is to be made after step ", step,
                                                    ", but step ", ledger_.closed_step(),
                                                    " is the last one that has closed"));
}

absl::Status JobTables::UpdateRoute(const JobSpec& spec) {
  const JobLedger::View now = ledger_.view();
  SLUICE_ASSIGN_OR_RETURN(std::shared_ptr<JobView> next,
                          NextView(*now, layouts_, spec.route(), address_));
  // The ranks of the open job: the spec could say another number of workers.
  SLUICE_RETURN_IF_ERROR(CheckMembers(spec, now->active_ranks.size()));
  if (spec.incarnations_size() > 0) FenceRanks(IncarnationsOf(spec), next.get());
  if (replicator_ != nullptr) {
    // Before the report can name the generation: it says that earlier copies are void here.
    const int64_t self = OwnerIndex(spec.route(), address_);
    copies_.TakeSpec(spec, self);
    replicator_->TakeSpec(spec, self);
    // Under the lock, so that the mark before this one is not found to be kept in between.
    MutexLock lock(&report_mutex_);
    untold_ = next;
    untold_since_ = replicator_->MarkNow();
  }
  ledger_.SetView(std::move(next));
  // No pull waits for a fenced life any more.
  requests_.AnswerReady(ledger_.TakeReady());
  return absl::OkStatus();
}

void JobTables::FenceRanks(const std::vector<uint64_t>& incarnations, JobView* view) {
  // First the ledger: a request that is under way then records no commit and no frame. When a shard
  // is fenced, it applies nothing more, so the positions read afterwards are final.
  JobLedger::Fenced fenced = ledger_.Fence(incarnations);
  view->ForEachShard([&](Shard* shard) {
    for (uint32_t rank = 0; rank < incarnations.size(); ++rank)
      shard->Fence(rank, incarnations[rank]);
  });
  view->positions = LeastPositions(*view);
  for (size_t rank = 0; rank < view->positions.size() && rank < fenced.commits.size(); ++rank) {
    RankPosition& position = view->positions[rank];
    position.set_committed(fenced.commits[rank].sequence());
    *position.mutable_totals() = fenced.commits[rank].totals();
    *position.mutable_totals_before() = fenced.commits_before[rank].totals();
  }
  const absl::Status status = absl::AbortedError(
      absl::StrCat("a later life of this rank serves job ", job_id_, "; this process must stop"));
  for (ParkedPull& p : fenced.dropped) p.reply->Refuse(status, view->generation);
}

void JobTables::Close() {
  const absl::Status status = absl::NotFoundError(absl::StrCat("job ", job_id_, " was closed"));
  // First the ledger: it admits no request any more while the rest ends.
  for (ParkedPull& p : ledger_.Close()) p.reply->Refuse(status, 0);
  cuts_.Cancel();
  if (replicator_ != nullptr) replicator_->Close();
}

void JobTables::HoldBackNews(HostedJob* report) {
  MutexLock lock(&report_mutex_);
  // Replacements of workers continue after the reported positions. Everything before these must
  // survive the loss of this process, or it would be lost without being counted.
  if (untold_ != nullptr && replicator_->Kept(untold_since_)) told_ = std::move(untold_);
  report->set_generation(told_->generation);
  report->mutable_ranks()->Assign(told_->positions.begin(), told_->positions.end());
}

void JobTables::HoldBackDeletion(HostedJob* report) {
  HostedCut* const cut = report->mutable_cut();
  if (cut->deletion() == 0 || cut->state() != HostedCut::WRITTEN) return;
  MutexLock lock(&report_mutex_);
  if (std::exchange(deleted_with_, cut->checkpoint()) != cut->checkpoint())
    deleted_by_ = replicator_->MarkNow();
  if (replicator_->Kept(deleted_by_)) return;
  cut->set_state(HostedCut::WRITING);
  cut->clear_files();
}

HostedJob JobTables::Report() {
  const JobLedger::View view = ledger_.view();
  HostedJob report;
  report.set_job_id(job_id_);
  // Before the lost updates: when no rank is awaited, they are complete.
  ledger_.FillReport(&report);
  uint64_t lost = 0;
  view->ForEachShard([&](Shard* shard) { lost += shard->updates_lost(); });
  report.set_updates_lost(lost);
  // A report goes with every heartbeat: the shards of a very large job are told by table alone.
  size_t room = 1000;
  for (size_t t = 0; t < layouts_.size(); ++t) {
    TableStatus* table = report.add_tables();
    table->set_name(layouts_[t]->name());
    table->set_kind(layouts_[t]->config().kind());
    uint64_t shards = 0, rows = 0, bytes = 0, reserved = 0, limit = 0;
    for (const auto& shard : view->shards[t]) {
      if (shard == nullptr) continue;
      ++shards;
      const uint64_t shard_rows = shard->rows(), shard_bytes = shard->bytes();
      rows += shard_rows;
      bytes += shard_bytes;
      reserved += shard->reserved_bytes();
      if (room > 0) {
        --room;
        ShardStatus* const one = table->add_each();
        one->set_shard(shard->index());
        one->set_rows(shard_rows);
        one->set_bytes(shard_bytes);
        one->set_rows_pushed(shard->rows_pushed());
      }
      if (!layouts_[t]->sparse()) continue;
      if (layouts_[t]->row_limit() != UINT64_MAX) limit += layouts_[t]->RowLimitOf(shard->index());
      AddTurnover(shard->turnover(), table->mutable_turnover());
    }
    table->set_shards(shards);
    table->set_rows(rows);
    table->set_bytes(bytes);
    table->set_reserved_bytes(reserved);
    table->set_row_limit(limit);
    report.set_bytes(report.bytes() + bytes);
    report.set_reserved_bytes(report.reserved_bytes() + reserved);
    if (layouts_[t]->sparse()) {
      report.set_rows(report.rows() + rows);
    } else {
      report.set_dense_elements(report.dense_elements() + rows);
    }
  }
  cuts_.FillReport(&report);
  if (replicator_ == nullptr) return report;
  HoldBackNews(&report);
  if (report.has_cut()) HoldBackDeletion(&report);
  replicator_->FillReport(&report);
  copies_.FillReport(&report);
  return report;
}

// While it lives, no other call saves the job. Waits for one that does.
class JobTables::SaveTurn {
 public:
  explicit SaveTurn(JobTables* job) : job_(job) {
    MutexLock lock(&job_->save_mutex_);
    while (job_->saving_) job_->saved_.Wait(&job_->save_mutex_);
    job_->saving_ = true;
  }
  ~SaveTurn() {
    MutexLock lock(&job_->save_mutex_);
    job_->saving_ = false;
    job_->saved_.NotifyAll();
  }
  SaveTurn(const SaveTurn&) = delete;
  SaveTurn& operator=(const SaveTurn&) = delete;

 private:
  JobTables* const job_;
};

absl::StatusOr<std::vector<SavedFile>> JobTables::SaveShards(const std::string& directory,
                                                             const std::string& save_id) {
  const SaveTurn turn(this);
  // An exception would leave the thread that serves the call and end the process.
  try {
    return SaveAlone(directory, save_id);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory to save the shards of job ", job_id_,
                     "; use more pservers or a machine with more memory"));
  }
}

absl::StatusOr<std::vector<SavedFile>> JobTables::SaveAlone(const std::string& directory,
                                                            const std::string& save_id) {
  const SpanTimer span(trace_.get(), TraceBatch::SAVE_SHARDS);
  const JobLedger::View view = ledger_.view();
  // A sparse shard has one cut at a time: no image may begin (the claim), and no checkpoint may be
  // under way.
  const SeedTurn::Claim claim(&seed_turn_);
  cuts_.AwaitEnd();
  const CutOptions options{false, writer_->NewBudget(available_memory_())};
  std::vector<SavedFile> files;
  for (size_t t = 0; t < layouts_.size(); ++t) {
    for (const auto& shard : view->shards[t]) {
      if (shard == nullptr) continue;
      SLUICE_ASSIGN_OR_RETURN(SavedFile file,
                              WriteShardFile(directory, *layouts_[t], shard->index(),
                                             shard->BeginCut(options).get(), env_, save_id));
      files.push_back(std::move(file));
    }
  }
  return files;
}

}  // namespace sluice
