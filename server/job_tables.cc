// The steps of a message:
//   1. JobLedger::Admit: its sender is not fenced and knows the generation; it gets the job's view.
//   2. RequestCheck::Check: it fits the tables, the mode and the limits as a whole.
//   3. ApplyPush: the parts of its push are applied, shard by shard. With replicas,
//      Replicator::Pump sends these changes to the follower.
// With the last message of a request:
//   4. CheckPushed (sync): every shard holds the push that it commits.
//   5. JobLedger::Complete: one lock. The frame is counted, commit and end of epoch are recorded,
//      and the pull is parked or stamped. Only then are values read.
//   6. ChangeShards: when that ended a step or an epoch, every shard applies the gradients that
//      waited for it. If the step asked for a checkpoint, its cut begins now. JobLedger::Settle
//      then does the rest of step 5, so that no pull of the next step is answered before the cut.
//   7. Answer: the request itself, unless it waits, and the parked pulls that became ready.
//      With replicas, Replicator::Acknowledge keeps an answer that acknowledges changes until the
//      follower has them.
// The job's lock is taken once for each message (1) and once at the end of the request (5). A
// request that ends a step or an epoch takes it once more (6). When a step takes long to close, the
// pserver's ShardThreads share the shards of step 6 and the answers of step 7.
#include "server/job_tables.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/output_folder.h"
#include "common/saved_model/saved_model.h"
#include "server/model_loader.h"
#include "server/no_room.h"
#include "server/request_parts.h"
#include "server/shard_threads.h"

namespace sluice {
namespace {

// INVALID_ARGUMENT: a shard does not have the rank's push of this step.
absl::Status CheckPushed(const JobView& view, uint32_t rank, uint64_t step) {
  absl::Status status;
  view.ForEachShard([&](Shard* shard) {
    if (!status.ok()) return;
    const uint64_t pushed = shard->LastPushed(rank);
    if (pushed >= step) return;
    status = absl::InvalidArgumentError(absl::StrCat(
        "commit ", step, " of rank ", rank, ", but shard ", shard->index(), " of table '",
        shard->table().name(), "' has only its push ", pushed, "; push before the commit"));
  });
  return status;
}

// A repeated part is fine: the ledger knows whether the frame was counted before.
bool AllPartsHere(const ReplyWriter& reply) {
  for (PartStatus bad :
       {PART_OUT_OF_ORDER, PART_STALE_INCARNATION, PART_BAD_SIZE, PART_NOT_FINITE}) {
    if (reply.has_error(bad)) return false;
  }
  return true;
}

std::vector<uint64_t> IncarnationsOf(const JobSpec& spec) {
  return {spec.incarnations().begin(), spec.incarnations().end()};
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
      env_(resources.env),
      layouts_(std::move(opened.layouts)),
      mode_(opened.policy.mode),
      check_(job_id_, layouts_, opened.policy.mode, resources.max_message_bytes),
      trace_(MakeTraceRecorder(spec, resources.clock)),
      own_writer_(resources.cut_writer == nullptr ? std::make_unique<CutWriter>() : nullptr),
      writer_(resources.cut_writer == nullptr ? own_writer_.get() : resources.cut_writer),
      available_memory_(resources.available_memory),
      on_report_changed_(resources.on_report_changed),
      shard_threads_(resources.shard_threads),
      ledger_(job_id_, opened.policy, std::move(opened.view), resources.clock, opened.closed),
      cuts_({spec.config().checkpoint().dir(), instance_, writer_, env_, resources.clock,
             available_memory_, resources.on_report_changed}),
      copies_(layouts_, opened.policy, resources.on_report_changed, resources.row_memory) {}

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
  options.on_change = on_report_changed_;
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
}

void JobTables::ForgetStream(uint64_t stream) {
  ledger_.ForgetStream(stream);
  if (replicator_ != nullptr) replicator_->ForgetStream(stream);
}

void JobTables::SetCutOrder(const CutOrder& order) {
  if (mode_ == Mode::kSync && order.commits_size() > 0) {
    // A step that closes now may ask for a checkpoint that is over.
    CutOrder over = order;
    over.clear_now();
    cuts_.SetOrder(over, *ledger_.view());
    for (const LostCommit& lost : order.commits()) CommitForLost(lost.rank(), lost.commit());
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
  job->StartReplication(spec, resources);
  return job;
}

absl::Status JobTables::Hello(const Caller& caller, uint64_t generation,
                              const sluice::Hello& hello) {
  // First of all: a hello fences earlier lives of its rank.
  SLUICE_RETURN_IF_ERROR(passes_.CheckWorker(caller.rank, caller.incarnation, hello.pass()));
  SLUICE_ASSIGN_OR_RETURN(const JobLedger::View view, ledger_.Hello(caller));
  if (view != nullptr) {
    view->ForEachShard([&](Shard* shard) { shard->Fence(caller.rank, caller.incarnation); });
    // No pull waits for the rank's earlier life any more.
    AnswerReady(ledger_.TakeReady());
  }
  SLUICE_ASSIGN_OR_RETURN(const JobLedger::View awaiting, ledger_.Awaits(caller, generation));
  return awaiting == nullptr ? absl::OkStatus() : Hear(caller, hello, *awaiting);
}

absl::Status JobTables::Hear(const Caller& caller, const sluice::Hello& hello,
                             const JobView& view) {
  std::map<std::pair<uint32_t, uint32_t>, const RankPosition*> acknowledged;  // by table and shard
  for (const Acknowledged& frame : hello.acknowledged()) {
    if (frame.table_size() != frame.shard_size()) {
      return absl::InvalidArgumentError(absl::StrCat("the hello of rank ", caller.rank, " lists ",
                                                     frame.table_size(), " tables and ",
                                                     frame.shard_size(), " shards of one frame"));
    }
    for (int i = 0; i < frame.table_size(); ++i)
      acknowledged[{frame.table(i), frame.shard(i)}] = &frame.position();
  }
  uint64_t least = UINT64_MAX;
  view.ForEachShard([&](Shard* shard) {
    const auto known = acknowledged.find({shard->table().id(), shard->index()});
    shard->Hear(caller.rank, caller.incarnation,
                known == acknowledged.end() ? RankPosition() : *known->second);
    least = std::min(least, shard->LastPushed(caller.rank));
  });
  if (ledger_.Heard(caller, least == UINT64_MAX ? 0 : least, hello.epochs_ended())) {
    try {
      Flush(view);
    } catch (const NoRoom& why) {
      ledger_.Fail(absl::StrCat("job ", job_id_, " on pserver ", address_, ": ", why.what()));
      throw;
    }
  }
  AnswerReady(ledger_.TakeReady());
  if (ledger_.awaits_any()) return absl::OkStatus();
  if (replicator_ != nullptr) replicator_->SeedSoon();
  if (on_report_changed_) on_report_changed_();
  return absl::OkStatus();
}

absl::Status JobTables::Handle(const Caller& caller, DecodedFrame frame, PushPart* scratch,
                               std::unique_ptr<ReplyWriter>* reply, absl::Status* malformed) {
  const bool changes =
      frame.header.has_push() || frame.header.has_commit() || frame.header.has_end_epoch();
  std::string error;
  try {
    return HandleSteps(caller, std::move(frame), scratch, reply, malformed);
  } catch (const NoRoom& why) {
    error = absl::StrCat("job ", job_id_, " on pserver ", address_, ": ", why.what());
  } catch (const std::bad_alloc&) {
    error =
        absl::StrCat("no memory for a request of rank ", caller.rank, " in job ", job_id_,
                     " on pserver ", address_, "; use more pservers or a machine with more memory");
  }
  // Some shards may have the change and others not, and one may have part of it. No retry can
  // repair that, so the job fails.
  if (changes) ledger_.Fail(error);
  return absl::ResourceExhaustedError(error);
}

absl::Status JobTables::HandleSteps(const Caller& caller, DecodedFrame frame, PushPart* scratch,
                                    std::unique_ptr<ReplyWriter>* reply, absl::Status* malformed) {
  SLUICE_ASSIGN_OR_RETURN(JobLedger::View view, ledger_.Admit(caller, frame.header.generation()));
  SLUICE_RETURN_IF_ERROR(check_.Check(frame.header, frame.payload.remaining()));
  JobLedger::Request request{caller, std::move(frame), std::move(view)};
  const FrameHeader& header = request.frame.header;
  if (header.has_push()) {
    SLUICE_ASSIGN_OR_RETURN(
        request.counts, ApplyPush(caller, *request.view, header, &request.frame.payload, scratch,
                                  reply->get(), malformed));
    if (replicator_ != nullptr) replicator_->Pump();
  }
  const bool acknowledges = replicator_ != nullptr && (header.has_push() || header.has_end_epoch());
  if (acknowledges) (*reply)->set_acknowledges(replicator_->ChangesNow());
  if (!header.last()) return absl::OkStatus();
  if (header.has_commit()) {
    request.commit = CheckPushed(*request.view, caller.rank, header.commit().sequence());
  }
  request.reply = reply;
  JobLedger::Outcome outcome = ledger_.Complete(&request);
  if (outcome.close_step || outcome.flush) {
    ChangeShards(request, outcome);
    if (acknowledges) (*reply)->set_acknowledges(replicator_->ChangesNow());
    outcome = ledger_.Settle(&request, outcome);
  }
  if (!outcome.status.ok() || outcome.parked) {
    AnswerReady(std::move(outcome.ready));
    return outcome.status;
  }
  AnswerReady(std::move(outcome.ready), [&] {
    Answer(caller, *request.view, header.pull(), std::move(request.frame.payload), outcome.stamp,
           reply);
  });
  reply->reset();
  return absl::OkStatus();
}

absl::StatusOr<bool> JobTables::ApplyPush(const Caller& caller, const JobView& view,
                                          const FrameHeader& header, PayloadReader* payload,
                                          PushPart* scratch, ReplyWriter* reply,
                                          absl::Status* malformed) {
  const Push& push = header.push();
  SpanTimer span(trace_.get(), header.last() ? TraceBatch::PUSH : TraceBatch::PUSH_PART);
  span.set_step(push.sequence());
  span.set_rank(caller.rank);
  const size_t unread = payload->remaining();
  PushFaults faults;
  const absl::Status applied = ApplyPushParts(view, layouts_, caller.rank, caller.incarnation, push,
                                              payload, scratch, reply, &faults);
  span.set_bytes(unread - payload->remaining());
  if (!faults.not_finite.ok()) ledger_.Fail(std::string(faults.not_finite.message()));
  if (!faults.malformed.ok()) *malformed = faults.malformed;
  SLUICE_RETURN_IF_ERROR(applied);
  return header.last() && !push.more() && AllPartsHere(*reply);
}

void JobTables::ChangeShards(const JobLedger::Request& request, const JobLedger::Outcome& wanted) {
  const JobView& view = *request.view;
  if (wanted.close_step) CloseStep(view, request.frame.header.commit().sequence(), wanted);
  if (!wanted.flush) return;
  Flush(view);
  if (replicator_ != nullptr) replicator_->Pump();
}

void JobTables::CloseStep(const JobView& view, uint64_t step, const JobLedger::Outcome& wanted) {
  SpanTimer span(trace_.get(), TraceBatch::CLOSE_STEP);
  span.set_step(step);
  std::vector<Shard*> shards;
  view.ForEachShard([&](Shard* shard) { shards.push_back(shard); });
  std::atomic<int64_t> busy_ns{0};  // of all threads together
  Share(shards.size(), [&](size_t i) {
    const auto begin = std::chrono::steady_clock::now();
    NamingTable(*shards[i], [&] { shards[i]->CloseStep(step); });
    busy_ns.fetch_add(std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count(),
                      std::memory_order_relaxed);
  });
  if (shard_threads_ != nullptr) {
    large_steps_.store(std::chrono::nanoseconds(busy_ns) >= shard_threads_->worth_sharing(),
                       std::memory_order_relaxed);
  }
  if (wanted.checkpoint > 0) cuts_.Begin(wanted.checkpoint, step, view);
}

void JobTables::CommitForLost(uint32_t rank, const Commit& commit) {
  const JobLedger::View view = ledger_.view();
  const uint64_t step = commit.sequence();
  if (rank >= view->active_ranks.size() || !CheckPushed(*view, rank, step).ok()) return;
  const JobLedger::Outcome outcome = ledger_.CommitForLost(rank, commit);
  if (!outcome.close_step) return;
  std::string error;
  try {
    CloseStep(*view, step, outcome);
  } catch (const NoRoom& why) {
    error = absl::StrCat("job ", job_id_, " on pserver ", address_, ": ", why.what());
  } catch (const std::bad_alloc&) {
    error = absl::StrCat("no memory for step ", step, " of job ", job_id_, " on pserver ", address_,
                         "; use more pservers or a machine with more memory");
  }
  // Some shards may have the step and others not, as in Handle.
  if (!error.empty()) return ledger_.Fail(error);
  AnswerReady(ledger_.StepClosed(outcome));
}

absl::Status JobTables::CanCutAfter(uint64_t step) {
  if (mode_ != Mode::kSync || ledger_.closed_step() == step) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the cut is to be made after step ", step,
                                                    ", but step ", ledger_.closed_step(),
                                                    " is the last one that has closed"));
}

void JobTables::Flush(const JobView& view) {
  view.ForEachShard([](Shard* shard) { NamingTable(*shard, [&] { shard->Flush(); }); });
}

void JobTables::AnswerReady(std::vector<ParkedPull> ready, const std::function<void()>& own) {
  // The request's own answer begins first: it is as large as the others.
  const size_t first = own != nullptr ? 1 : 0;
  Share(first + ready.size(),
        [&](size_t i) { i < first ? own() : AnswerParked(&ready[i - first]); });
}

void JobTables::AnswerParked(ParkedPull* parked) {
  try {
    Answer(parked->caller, *parked->view, parked->pull, std::move(parked->payload), parked->stamp,
           &parked->reply);
  } catch (const std::bad_alloc&) {
    // This pull may belong to another worker than the current request. Refuse it here, or it would
    // never be answered.
    parked->reply->Refuse(
        absl::ResourceExhaustedError(absl::StrCat("no memory for the answer to rank ",
                                                  parked->caller.rank, " on pserver ", address_)),
        parked->stamp.generation);
  }
}

void JobTables::Share(size_t n, const std::function<void(size_t)>& work) {
  if (shard_threads_ != nullptr && large_steps_.load(std::memory_order_relaxed))
    return shard_threads_->ForEach(n, work);
  ShardThreads::ForEachAlone(n, work);
}

void JobTables::Answer(const Caller& caller, const JobView& view, const Pull& pull,
                       PayloadReader payload, const ReplyStamp& stamp,
                       std::unique_ptr<ReplyWriter>* reply) {
  // An answer without values is an acknowledgement and gets no span.
  SpanTimer span(pull.parts().table_size() > 0 ? trace_.get() : nullptr, TraceBatch::PULL);
  span.set_rank(caller.rank);
  span.set_bytes(ReadPullParts(view, layouts_, pull.parts(), std::move(payload), reply->get()));
  if ((*reply)->acknowledges()) {
    return replicator_->Acknowledge(caller.stream, std::move(*reply), stamp);
  }
  (*reply)->Finish(stamp.generation, stamp.others, stamp.checkpoint);
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
  AnswerReady(ledger_.TakeReady());
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
  for (ParkedPull& p : ledger_.Close()) p.reply->Refuse(status, 0);
  cuts_.Cancel();
  if (replicator_ != nullptr) replicator_->Close();
}

void JobTables::HoldBackNews(HostedJob* report) {
  MutexLock lock(&report_mutex_);
  if (untold_ != nullptr && replicator_->Kept(untold_since_)) told_ = std::move(untold_);
  report->set_generation(told_->generation);
  report->mutable_ranks()->Assign(told_->positions.begin(), told_->positions.end());
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
  for (size_t t = 0; t < layouts_.size(); ++t) {
    TableStatus* table = report.add_tables();
    table->set_name(layouts_[t]->name());
    table->set_kind(layouts_[t]->config().kind());
    uint64_t shards = 0, rows = 0, bytes = 0, reserved = 0;
    for (const auto& shard : view->shards[t]) {
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
  cuts_.FillReport(&report);
  if (replicator_ == nullptr) return report;
  HoldBackNews(&report);
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
