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
#include "server/tables/request_path.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "server/requests/request_parts.h"
#include "server/shards/no_room.h"
#include "server/shards/not_finite_change.h"

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

}  // namespace

RequestPath::RequestPath(Job job)
    : job_id_(std::move(job.id)),
      address_(std::move(job.address)),
      passes_(job.passes),
      layouts_(job.layouts),
      check_(job_id_, *layouts_, job.mode, job.max_message_bytes),
      ledger_(job.ledger),
      cuts_(job.cuts),
      trace_(job.trace),
      shard_threads_(job.shard_threads),
      on_report_changed_(std::move(job.on_report_changed)) {}

absl::Status RequestPath::Hello(const Caller& caller, uint64_t generation,
                                const sluice::Hello& hello) {
  // First of all: a hello fences earlier lives of its rank.
  SLUICE_RETURN_IF_ERROR(passes_->CheckWorker(caller.rank, caller.incarnation, hello.pass()));
  SLUICE_ASSIGN_OR_RETURN(const JobLedger::View view, ledger_->Hello(caller));
  if (view != nullptr) {
    view->ForEachShard([&](Shard* shard) { shard->Fence(caller.rank, caller.incarnation); });
    // No pull waits for the rank's earlier life any more.
    AnswerReady(ledger_->TakeReady());
  }
  SLUICE_ASSIGN_OR_RETURN(const JobLedger::View awaiting, ledger_->Awaits(caller, generation));
  return awaiting == nullptr ? absl::OkStatus() : Hear(caller, hello, *awaiting);
}

absl::Status RequestPath::Hear(const Caller& caller, const sluice::Hello& hello,
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
  if (ledger_->Heard(caller, least == UINT64_MAX ? 0 : least, hello.epochs_ended())) {
    const absl::Status flushed = Change("the end of an epoch", [&] { Flush(view); });
    if (!flushed.ok()) {
      ledger_->Fail(std::string(flushed.message()));
      return flushed;
    }
  }
  AnswerReady(ledger_->TakeReady());
  if (ledger_->awaits_any()) return absl::OkStatus();
  if (replicator_ != nullptr) replicator_->SeedSoon();
  if (on_report_changed_) on_report_changed_();
  return absl::OkStatus();
}

absl::Status RequestPath::Change(const std::string& what, absl::FunctionRef<void()> change) const {
  const auto on_pserver = [&](const std::exception& why) {
    return absl::StrCat("job ", job_id_, " on pserver ", address_, ": ", why.what());
  };
  try {
    change();
    return absl::OkStatus();
  } catch (const NotFiniteChange& why) {
    return absl::OutOfRangeError(on_pserver(why));
  } catch (const NoRoom& why) {
    return absl::ResourceExhaustedError(on_pserver(why));
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory for ", what, " in job ", job_id_,
                                                     " on pserver ", address_,
                                                     "; use more pservers or a machine with more "
                                                     "memory"));
  }
}

absl::Status RequestPath::Handle(const Caller& caller, DecodedFrame frame, PushPart* scratch,
                                 std::unique_ptr<ReplyWriter>* reply, absl::Status* malformed) {
  const bool changes =
      frame.header.has_push() || frame.header.has_commit() || frame.header.has_end_epoch();
  absl::Status refused;
  const absl::Status changed = Change(absl::StrCat("a request of rank ", caller.rank), [&] {
    refused = HandleSteps(caller, std::move(frame), scratch, reply, malformed);
  });
  if (changed.ok()) return refused;
  if (changes) ledger_->Fail(std::string(changed.message()));
  return changed;
}

absl::Status RequestPath::HandleSteps(const Caller& caller, DecodedFrame frame, PushPart* scratch,
                                      std::unique_ptr<ReplyWriter>* reply,
                                      absl::Status* malformed) {
  SLUICE_ASSIGN_OR_RETURN(JobLedger::View view, ledger_->Admit(caller, frame.header.generation()));
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
  JobLedger::Outcome outcome = ledger_->Complete(&request);
  if (outcome.close_step || outcome.flush) {
    ChangeShards(request, outcome);
    if (acknowledges) (*reply)->set_acknowledges(replicator_->ChangesNow());
    outcome = ledger_->Settle(&request, outcome);
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

absl::StatusOr<bool> RequestPath::ApplyPush(const Caller& caller, const JobView& view,
                                            const FrameHeader& header, PayloadReader* payload,
                                            PushPart* scratch, ReplyWriter* reply,
                                            absl::Status* malformed) {
  const Push& push = header.push();
  SpanTimer span(trace_, header.last() ? TraceBatch::PUSH : TraceBatch::PUSH_PART);
  span.set_step(push.sequence());
  span.set_rank(caller.rank);
  const size_t unread = payload->remaining();
  PushFaults faults;
  const absl::Status applied = ApplyPushParts(view, *layouts_, caller.rank, caller.incarnation,
                                              push, payload, scratch, reply, &faults);
  span.set_bytes(unread - payload->remaining());
  if (!faults.not_finite.ok()) ledger_->Fail(std::string(faults.not_finite.message()));
  if (!faults.malformed.ok()) *malformed = faults.malformed;
  SLUICE_RETURN_IF_ERROR(applied);
  return header.last() && !push.more() && AllPartsHere(*reply);
}

void RequestPath::ChangeShards(const JobLedger::Request& request,
                               const JobLedger::Outcome& wanted) {
  const JobView& view = *request.view;
  if (wanted.close_step) CloseStep(view, request.frame.header.commit().sequence(), wanted);
  if (!wanted.flush) return;
  Flush(view);
  if (replicator_ != nullptr) replicator_->Pump();
}

void RequestPath::CloseStep(const JobView& view, uint64_t step, const JobLedger::Outcome& wanted) {
  SpanTimer span(trace_, TraceBatch::CLOSE_STEP);
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
  if (wanted.checkpoint > 0) cuts_->Begin(wanted.checkpoint, step, view);
}

void RequestPath::CommitForLost(uint32_t rank, const Commit& commit) {
  const JobLedger::View view = ledger_->view();
  const uint64_t step = commit.sequence();
  if (rank >= view->active_ranks.size() || !CheckPushed(*view, rank, step).ok()) return;
  const JobLedger::Outcome outcome = ledger_->CommitForLost(rank, commit);
  if (!outcome.close_step) return;
  const absl::Status closed =
      Change(absl::StrCat("step ", step), [&] { CloseStep(*view, step, outcome); });
  if (!closed.ok()) return ledger_->Fail(std::string(closed.message()));
  AnswerReady(ledger_->StepClosed(outcome));
}

void RequestPath::ForgetStream(uint64_t stream) {
  ledger_->ForgetStream(stream);
  if (replicator_ != nullptr) replicator_->ForgetStream(stream);
}

void RequestPath::Flush(const JobView& view) {
  view.ForEachShard([](Shard* shard) { NamingTable(*shard, [&] { shard->Flush(); }); });
}

void RequestPath::AnswerReady(std::vector<ParkedPull> ready, const std::function<void()>& own) {
  // The request's own answer begins first: it is as large as the others.
  const size_t first = own != nullptr ? 1 : 0;
  Share(first + ready.size(),
        [&](size_t i) { i < first ? own() : AnswerParked(&ready[i - first]); });
}

void RequestPath::AnswerParked(ParkedPull* parked) {
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

void RequestPath::Share(size_t n, const std::function<void(size_t)>& work) {
  if (shard_threads_ != nullptr && large_steps_.load(std::memory_order_relaxed))
    return shard_threads_->ForEach(n, work);
  ShardThreads::ForEachAlone(n, work);
}

void RequestPath::Answer(const Caller& caller, const JobView& view, const Pull& pull,
                         PayloadReader payload, const ReplyStamp& stamp,
                         std::unique_ptr<ReplyWriter>* reply) {
  // An answer without values is an acknowledgement and gets no span.
  SpanTimer span(pull.parts().table_size() > 0 ? trace_ : nullptr, TraceBatch::PULL);
  span.set_rank(caller.rank);
  span.set_bytes(ReadPullParts(view, *layouts_, pull.parts(), std::move(payload), reply->get()));
  if ((*reply)->acknowledges()) {
    return replicator_->Acknowledge(caller.stream, std::move(*reply), stamp);
  }
  (*reply)->Finish(stamp.generation, stamp.others, stamp.checkpoint);
}

}  // namespace sluice
