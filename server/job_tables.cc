// The steps of a request: check, apply the push, count the frame, commit, end the epoch, answer or
// park.
#include "server/job_tables.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

// Weights above this could overflow a sum in double.
constexpr double kMaxWeight = 1e200;
// Parts that name more than this are no message; sums of parts below it do not overflow.
constexpr uint64_t kMaxPartsBytes = uint64_t{1} << 62;
// Of a message beside the values of its one part.
constexpr uint64_t kHeaderRoom = 4096;

absl::Status CheckParts(const TableLayouts& layouts, const Parts& parts, bool push,
                        uint64_t* bytes) {
  const int n = parts.table_size();
  if (parts.shard_size() != n || parts.rows_size() != n) {
    return absl::InvalidArgumentError(absl::StrCat("parts have ", n, " tables, ",
                                                   parts.shard_size(), " shards and ",
                                                   parts.rows_size(), " rows; give one each"));
  }
  absl::flat_hash_set<uint64_t> seen;
  for (int i = 0; i < n; ++i) {
    const uint32_t table = parts.table(i), shard = parts.shard(i);
    if (table >= layouts.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("part ", i, " is for table ", table, "; the job has ", layouts.size()));
    }
    const TableLayout& layout = *layouts[table];
    if (shard >= layout.num_shards()) {
      return absl::InvalidArgumentError(absl::StrCat("part ", i, " is for shard ", shard,
                                                     " of table '", layout.name(), "', which has ",
                                                     layout.num_shards()));
    }
    if (!seen.insert(static_cast<uint64_t>(table) << 32 | shard).second) {
      return absl::InvalidArgumentError(absl::StrCat("shard ", shard, " of table '", layout.name(),
                                                     "' is named twice in one message"));
    }
    const uint64_t rows = parts.rows(i);
    if (layout.sparse()) {
      const uint64_t row_bytes = static_cast<uint64_t>(layout.dim()) * layout.wire_bytes();
      *bytes += rows * (8 + (push ? row_bytes : 0));
    } else if (push) {
      *bytes += rows * layout.wire_bytes();
    }
    if (*bytes > kMaxPartsBytes) {
      return absl::InvalidArgumentError(absl::StrCat("part ", i, " of table '", layout.name(),
                                                     "' names ", rows, " rows, too many"));
    }
  }
  return absl::OkStatus();
}

// Adds the shard's current values to the answer.
void AddValues(Shard* shard, const std::vector<uint64_t>& keys, uint32_t rows, size_t bytes,
               ReplyWriter* reply) {
  const uint32_t table = shard->table().id();
  Slice lent = shard->Lend();
  if (lent.owner() != nullptr) {
    reply->AddPart(table, shard->index(), rows, std::move(lent));
  } else {
    shard->Read(keys.data(), keys.size(), reply->AddPart(table, shard->index(), rows, bytes));
  }
}

}  // namespace

absl::Status JobTables::Hello(const Caller& caller) {
  if (caller.rank >= policy_.worker_num) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", caller.rank, " in job ", job_id_,
                                                   " of ", policy_.worker_num, " workers"));
  }
  {
    MutexLock lock(&mutex_);
    const uint64_t known = frames_.incarnation(caller.rank);
    if (caller.incarnation < known) {
      return absl::AbortedError(absl::StrCat("incarnation ", caller.incarnation, " of rank ",
                                             caller.rank, " is fenced by incarnation ", known,
                                             "; this process must stop"));
    }
    if (caller.incarnation == known) return absl::OkStatus();
    frames_.Fence(caller.rank, caller.incarnation);
    staleness_.SetIdle(caller.rank);
  }
  for (const auto& table : shards_) {
    for (const auto& shard : table) {
      if (shard != nullptr) shard->Fence(caller.rank, caller.incarnation);
    }
  }
  AnswerReady();
  return absl::OkStatus();
}

absl::Status JobTables::CheckCaller(const Caller& caller, uint64_t generation) {
  MutexLock lock(&mutex_);
  if (closed_) {
    return absl::NotFoundError(absl::StrCat("job ", job_id_, " is not open on this pserver"));
  }
  if (caller.incarnation < frames_.incarnation(caller.rank)) {
    return absl::AbortedError(absl::StrCat(
        "incarnation ", caller.incarnation, " of rank ", caller.rank, " is fenced by incarnation ",
        frames_.incarnation(caller.rank), "; this process must stop"));
  }
  if (generation != generation_) {
    return absl::FailedPreconditionError(
        absl::StrCat("request of generation ", generation, ", job ", job_id_, " is at generation ",
                     generation_, "; fetch the route and send it again"));
  }
  return absl::OkStatus();
}

absl::Status JobTables::CheckRequest(const FrameHeader& header, size_t payload_bytes) const {
  if (header.has_hello()) {
    return absl::InvalidArgumentError("hello is the first request of a stream, and comes once");
  }
  if (!header.last() && (header.has_commit() || header.has_pull() || header.has_end_epoch())) {
    return absl::InvalidArgumentError(
        "commit, pull and end_epoch belong in the last message of a request");
  }
  uint64_t bytes = 0;
  if (header.has_push()) {
    const Push& push = header.push();
    if (push.sequence() == 0) {
      return absl::InvalidArgumentError("a push has no sequence; sequences start at 1");
    }
    if (!(push.weight() >= 0 && push.weight() <= kMaxWeight)) {
      return absl::InvalidArgumentError(absl::StrCat("push ", push.sequence(), " has weight ",
                                                     push.weight(), "; it must be 0 or more"));
    }
    SLUICE_RETURN_IF_ERROR(CheckParts(layouts_, push.parts(), true, &bytes));
  }
  if (header.has_pull())
    SLUICE_RETURN_IF_ERROR(CheckParts(layouts_, header.pull().parts(), false, &bytes));
  if (bytes != payload_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("request ", header.request_id(),
                                                   " has a payload of ", payload_bytes,
                                                   " bytes; its parts need ", bytes));
  }
  return absl::OkStatus();
}

absl::Status JobTables::CheckAnswer(const Pull& pull) const {
  const Parts& parts = pull.parts();
  uint64_t sparse = 0;
  for (int i = 0; i < parts.table_size(); ++i) {
    const TableLayout& layout = *layouts_[parts.table(i)];
    if (!layout.sparse()) continue;
    const uint64_t bytes = uint64_t{parts.rows(i)} * layout.dim() * layout.wire_bytes();
    sparse += bytes;
    if (bytes + kHeaderRoom <= limits_.max_message_bytes && sparse <= kMaxPullBytes) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("pull of ", parts.rows(i), " rows of table '", layout.name(), "' shard ",
                     parts.shard(i), " asks for ", bytes, " bytes, and the pull for ", sparse,
                     " so far; one part may have at most ", limits_.max_message_bytes,
                     " (limits.max_message_mib), all of a pull ", kMaxPullBytes,
                     "; use smaller batches, more shards, or raise the limit"));
  }
  return absl::OkStatus();
}

absl::Status JobTables::CheckMode(const FrameHeader& header) const {
  const bool geo = policy_.mode == Mode::kGeo, sync = policy_.mode == Mode::kSync;
  if (header.has_push() && header.push().delta() != geo) {
    return absl::InvalidArgumentError(absl::StrCat("a push of ", geo ? "gradients" : "deltas",
                                                   " to job ", job_id_, " in ",
                                                   ModeName(policy_.mode), " mode"));
  }
  if (header.push().more() && policy_.mode != Mode::kAsync) {
    return absl::InvalidArgumentError(absl::StrCat("a push in pieces (more) to job ", job_id_,
                                                   " in ", ModeName(policy_.mode),
                                                   " mode; pieces are for async jobs"));
  }
  if (!sync && (header.has_commit() || header.pull().applied_sequence() != 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("commit and applied_sequence are for sync jobs; job ", job_id_, " runs in ",
                     ModeName(policy_.mode), " mode"));
  }
  return absl::OkStatus();
}

absl::Status JobTables::Handle(const Caller& caller, DecodedFrame frame, PushPart* scratch,
                               std::unique_ptr<ReplyWriter>* reply) {
  const bool changes =
      frame.header.has_push() || frame.header.has_commit() || frame.header.has_end_epoch();
  try {
    return HandleChecked(caller, std::move(frame), scratch, reply);
  } catch (const std::bad_alloc&) {
    const std::string error =
        absl::StrCat("no memory for a request of rank ", caller.rank, " in job ", job_id_,
                     " on pserver ", address_, "; use more pservers or a machine with more memory");
    // Some shards may have it and others not, one perhaps in part: no try can mend that.
    if (changes) Fail(error);
    return absl::ResourceExhaustedError(error);
  }
}

absl::Status JobTables::HandleChecked(const Caller& caller, DecodedFrame frame, PushPart* scratch,
                                      std::unique_ptr<ReplyWriter>* reply) {
  const FrameHeader& header = frame.header;
  SLUICE_RETURN_IF_ERROR(CheckCaller(caller, header.generation()));
  SLUICE_RETURN_IF_ERROR(CheckRequest(header, frame.payload.remaining()));
  SLUICE_RETURN_IF_ERROR(CheckMode(header));
  if (header.has_pull()) SLUICE_RETURN_IF_ERROR(CheckAnswer(header.pull()));
  if (header.has_push()) {
    ApplyPush(caller, header.push(), header.last(), &frame.payload, scratch, reply->get());
    if (header.last() && !header.push().more()) CountFrame(caller, header.push(), **reply);
  }
  if (!header.last()) return absl::OkStatus();
  if (header.has_commit()) SLUICE_RETURN_IF_ERROR(CommitStep(caller, header.commit().sequence()));
  if (header.has_end_epoch()) EndEpoch(caller, header.end_epoch().epoch());
  if (header.has_pull()) {
    return AnswerOrPark(caller, header.pull(), std::move(frame.payload), reply);
  }
  Answer(caller, Pull(), PayloadReader(), reply->get());
  reply->reset();
  return absl::OkStatus();
}

void JobTables::ApplyPush(const Caller& caller, const Push& push, bool last, PayloadReader* payload,
                          PushPart* scratch, ReplyWriter* reply) {
  SpanTimer span(trace_.get(), last ? TraceBatch::PUSH : TraceBatch::PUSH_PART);
  span.set_step(push.sequence());
  span.set_rank(caller.rank);
  const size_t unread = payload->remaining();
  const FrameId frame{caller.rank, caller.incarnation, push.sequence(), push.weight()};
  const Parts& parts = push.parts();
  for (int i = 0; i < parts.table_size(); ++i) {
    const uint32_t table = parts.table(i), index = parts.shard(i), rows = parts.rows(i);
    const TableLayout& layout = *layouts_[table];
    Shard* shard = FindShard(table, index);
    if (shard == nullptr) {
      const size_t row_bytes =
          layout.sparse() ? 8 + size_t{layout.dim()} * layout.wire_bytes() : layout.wire_bytes();
      payload->Skip(rows * row_bytes);
      reply->AddError(table, index, PART_WRONG_SHARD, 0);
      continue;
    }
    ApplyResult result;
    result.status = shard->Decode(rows, payload, scratch);
    if (result.status == PART_OK) {
      // Kept apart: a shard in sync mode takes the part over.
      const std::vector<uint64_t> keys = push.delta() ? scratch->keys : std::vector<uint64_t>();
      result = shard->Apply(frame, scratch);
      scratch->message = PayloadReader();
      if (result.status == PART_OK && push.delta()) {
        const uint32_t n =
            layout.sparse() ? rows : static_cast<uint32_t>(layout.ShardElements(index));
        const size_t bytes = size_t{n} * layout.wire_bytes() * (layout.sparse() ? layout.dim() : 1);
        AddValues(shard, keys, n, bytes, reply);
      }
    } else if (result.status == PART_NOT_FINITE) {
      Fail(absl::StrCat("table '", layout.name(), "': push ", push.sequence(), " of rank ",
                        caller.rank, " has a NaN or Inf for shard ", index,
                        "; lower the learning rate or set clip_value"));
    }
    if (result.status != PART_OK)
      reply->AddError(table, index, result.status, result.last_sequence);
  }
  span.set_bytes(unread - payload->remaining());
}

void JobTables::CountFrame(const Caller& caller, const Push& push, const ReplyWriter& reply) {
  for (PartStatus bad :
       {PART_OUT_OF_ORDER, PART_STALE_INCARNATION, PART_BAD_SIZE, PART_NOT_FINITE}) {
    if (reply.has_error(bad)) return;
  }
  {
    MutexLock lock(&mutex_);
    if (frames_.Admit(caller.rank, caller.incarnation, push.sequence()) !=
        DeliveryGate::Verdict::kApply) {
      return;
    }
    staleness_.Activate(caller.rank);
    // In sync nothing is stale: every gradient is of the last step's values.
    staleness_.Applied(caller.rank, policy_.mode == Mode::kSync ? staleness_.others(caller.rank)
                                                                : push.pulled_others());
    // It trains on: the end that it announced was not the end.
    epochs_ended_[caller.rank] = std::min(epochs_ended_[caller.rank], epochs_flushed_);
  }
  AnswerReady();
}

absl::Status JobTables::CommitStep(const Caller& caller, uint64_t step) {
  for (const auto& table : shards_) {
    for (const auto& shard : table) {
      if (shard == nullptr) continue;
      const uint64_t pushed = shard->LastPushed(caller.rank);
      if (pushed >= step) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "commit ", step, " of rank ", caller.rank, ", but shard ", shard->index(), " of table '",
          shard->table().name(), "' has only its push ", pushed, "; push before the commit"));
    }
  }
  StepBarrier::Outcome outcome;
  {
    MutexLock lock(&mutex_);
    outcome = barrier_.Commit(caller.rank, step, clock_->Now());
    if (outcome == StepBarrier::Outcome::kAhead) {
      return absl::InvalidArgumentError(absl::StrCat("commit ", step, " of rank ", caller.rank,
                                                     ", but step ", barrier_.closed() + 1,
                                                     " is open; read its result first"));
    }
  }
  if (outcome == StepBarrier::Outcome::kClose) CloseStep(step);
  return absl::OkStatus();
}

void JobTables::CloseStep(uint64_t step) {
  {
    SpanTimer span(trace_.get(), TraceBatch::CLOSE_STEP);
    span.set_step(step);
    for (const auto& table : shards_) {
      for (const auto& shard : table) {
        if (shard != nullptr) shard->CloseStep(step);
      }
    }
  }
  {
    MutexLock lock(&mutex_);
    barrier_.Closed();
  }
  AnswerReady();
}

void JobTables::EndEpoch(const Caller& caller, uint32_t epoch) {
  bool flush = false;
  {
    MutexLock lock(&mutex_);
    staleness_.SetIdle(caller.rank);
    uint32_t& ended = epochs_ended_[caller.rank];
    ended = std::max(ended, epoch + 1);
    const uint32_t all = *std::min_element(epochs_ended_.begin(), epochs_ended_.end());
    // Also once more for a rank that was given a dead one's task after the others' flush.
    flush = all >= epoch + 1;
    epochs_flushed_ = std::max(all, epochs_flushed_);
  }
  if (flush) {
    for (const auto& table : shards_) {
      for (const auto& shard : table) {
        if (shard != nullptr) shard->Flush();
      }
    }
  }
  AnswerReady();
}

bool JobTables::Ready(const Caller& caller, const Pull& pull, uint64_t step) const {
  if (policy_.mode == Mode::kSync) return barrier_.closed() >= pull.applied_sequence();
  return pull.evaluation() || staleness_.Ready(caller.rank, step);
}

absl::Status JobTables::AnswerOrPark(const Caller& caller, const Pull& pull, PayloadReader payload,
                                     std::unique_ptr<ReplyWriter>* reply) {
  {
    MutexLock lock(&mutex_);
    if (pull.applied_sequence() > barrier_.closed() + 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("pull of rank ", caller.rank, " waits for step ", pull.applied_sequence(),
                       ", but step ", barrier_.closed() + 1, " is open"));
    }
    if (!pull.evaluation()) staleness_.Activate(caller.rank);
    if (closed_) return absl::NotFoundError(absl::StrCat("job ", job_id_, " was closed"));
    const uint64_t step =
        staleness_.StepOf(caller.rank, pull.for_push(), frames_.last(caller.rank));
    if (!Ready(caller, pull, step)) {
      if (parked_.size() >= kMaxParkedPerWorker * policy_.worker_num) {
        return absl::ResourceExhaustedError(absl::StrCat("job ", job_id_, " has ", parked_.size(),
                                                         " waiting pulls; wait for answers"));
      }
      parked_.push_back({caller, pull, std::move(payload), std::move(*reply), clock_->Now(), step});
      return absl::OkStatus();
    }
  }
  Answer(caller, pull, std::move(payload), reply->get());
  reply->reset();
  return absl::OkStatus();
}

void JobTables::AnswerReady() {
  std::vector<ParkedPull> ready;
  {
    MutexLock lock(&mutex_);
    size_t kept = 0;
    for (size_t i = 0; i < parked_.size(); ++i) {
      if (Ready(parked_[i].caller, parked_[i].pull, parked_[i].step)) {
        ready.push_back(std::move(parked_[i]));
      } else {
        if (kept != i) parked_[kept] = std::move(parked_[i]);
        ++kept;
      }
    }
    parked_.resize(kept);
  }
  for (ParkedPull& p : ready) {
    try {
      Answer(p.caller, p.pull, std::move(p.payload), p.reply.get());
    } catch (const std::bad_alloc&) {
      // Of another worker than the one that made it ready: refused here, or it would wait for ever.
      p.reply->Refuse(
          absl::ResourceExhaustedError(absl::StrCat("no memory for the answer to rank ",
                                                    p.caller.rank, " on pserver ", address_)),
          generation());
    }
  }
}

void JobTables::Answer(const Caller& caller, const Pull& pull, PayloadReader payload,
                       ReplyWriter* reply) {
  const Parts& parts = pull.parts();
  // An answer without values only acknowledges.
  SpanTimer span(parts.table_size() > 0 ? trace_.get() : nullptr, TraceBatch::PULL);
  span.set_rank(caller.rank);
  uint64_t generation, others;
  {
    // Before the values are read: staleness is never counted too small.
    MutexLock lock(&mutex_);
    generation = generation_;
    others = policy_.mode == Mode::kSync ? 0 : staleness_.others(caller.rank);
  }
  std::vector<size_t> part_bytes(parts.table_size());
  size_t bytes = 0;
  for (int i = 0; i < parts.table_size(); ++i) {
    const TableLayout& layout = *layouts_[parts.table(i)];
    if (FindShard(parts.table(i), parts.shard(i)) == nullptr) continue;
    part_bytes[i] = layout.wire_bytes() * (layout.sparse() ? size_t{parts.rows(i)} * layout.dim()
                                                           : layout.ShardElements(parts.shard(i)));
    reply->Expect(part_bytes[i]);
    bytes += part_bytes[i];
  }
  span.set_bytes(bytes);
  std::vector<uint64_t> keys;
  for (int i = 0; i < parts.table_size(); ++i) {
    const TableLayout& layout = *layouts_[parts.table(i)];
    const uint32_t table = parts.table(i), index = parts.shard(i);
    keys.resize(layout.sparse() ? parts.rows(i) : 0);
    payload.Copy(keys.data(), keys.size() * sizeof(uint64_t));
    Shard* shard = FindShard(table, index);
    if (shard == nullptr) {
      reply->AddError(table, index, PART_WRONG_SHARD, 0);
      continue;
    }
    const uint32_t rows =
        layout.sparse() ? parts.rows(i) : static_cast<uint32_t>(layout.ShardElements(index));
    AddValues(shard, keys, rows, part_bytes[i], reply);
  }
  reply->Finish(generation, others);
}

void JobTables::ForgetStream(uint64_t stream) {
  std::vector<ParkedPull> gone;
  MutexLock lock(&mutex_);
  for (size_t i = 0; i < parked_.size();) {
    if (parked_[i].caller.stream != stream) {
      ++i;
      continue;
    }
    gone.push_back(std::move(parked_[i]));
    parked_[i] = std::move(parked_.back());
    parked_.pop_back();
  }
}

void JobTables::Close() {
  std::vector<ParkedPull> gone;
  {
    MutexLock lock(&mutex_);
    closed_ = true;
    gone.swap(parked_);
  }
  const absl::Status status = absl::NotFoundError(absl::StrCat("job ", job_id_, " was closed"));
  for (ParkedPull& p : gone) p.reply->Refuse(status, 0);
}

void JobTables::Fail(const std::string& error) {
  MutexLock lock(&mutex_);
  if (error_.empty()) error_ = error;
}

}  // namespace sluice
