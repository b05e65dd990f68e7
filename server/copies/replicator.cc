#include "server/copies/replicator.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/table/placement.h"
#include "common/wire/frame.h"
#include "server/copies/seed_stream.h"

namespace sluice {
namespace {

// How often the thread looks for a follower that is silent, or a log that has closed itself.
constexpr std::chrono::milliseconds kFollowerLook(50);

// A longer time between two looks shows that this process was stopped.
constexpr absl::Duration kStopped = absl::Seconds(1);

// Once checkpoints have interrupted a shard's image this many times, the image is finished first.
constexpr int kGiveUps = 3;

}  // namespace

Replicator::Replicator(Options options, std::vector<std::shared_ptr<Shard>> shards)
    : options_(std::move(options)), shards_(std::move(shards)) {
  thread_ = std::thread([this] { Run(); });
}

void Replicator::TakeSpec(const JobSpec& spec, int64_t self) {
  int64_t follower = self;
  if (self >= 0 && self < spec.follower_size()) follower = spec.follower(static_cast<int>(self));
  const bool has_follower = self >= 0 && follower != self;
  std::vector<Answer> ready;
  {
    MutexLock lock(&mutex_);
    self_ = self;
    generation_ = spec.route().generation();
    follower_ =
        has_follower ? PserverAt(spec.route(), static_cast<uint32_t>(follower)) : PserverAddress();
    gate_.Assign(has_follower);
    if (!has_follower) {
      // Ends the present session at its next Check, even if a route names a follower again by then.
      ++assignments_;
      error_.clear();
    }
    ready = TakeReady();
    changed_.NotifyAll();
  }
  Finish(std::move(ready));
}

void Replicator::SeedSoon() {
  MutexLock lock(&mutex_);
  changed_.NotifyAll();
}

uint64_t Replicator::EndOfLog() { return session_ == nullptr ? 0 : session_->log->end(); }

std::vector<Replicator::Answer> Replicator::TakeReady() {
  std::vector<Answer> ready;
  while (!kept_.empty() && gate_.MayLeave(kept_.front().changes)) {
    ready.push_back(std::move(kept_.front()));
    kept_.pop_front();
  }
  return ready;
}

void Replicator::Finish(std::vector<Answer> answers) {
  for (Answer& answer : answers) {
    const ReplyStamp& stamp = answer.stamp;
    answer.reply->Finish(stamp.generation, stamp.others, stamp.checkpoint);
  }
}

void Replicator::Acknowledge(uint64_t stream, std::unique_ptr<ReplyWriter> reply,
                             const ReplyStamp& stamp) {
  absl::Status refusal;
  {
    MutexLock lock(&mutex_);
    const Mark changes = reply->changes();
    if (!gate_.MayLeave(changes)) {
      if (stopping_) {
        // Close has refused those that were kept, and the follower may lack these changes.
        refusal = Closed();
      } else if (kept_.size() < options_.worker_num * kKeptPerRank) {
        // A session's answers have all left when the next one begins.
        const auto at = std::upper_bound(
            kept_.begin(), kept_.end(), changes.position,
            [](uint64_t position, const Answer& a) { return position < a.changes.position; });
        kept_.insert(at, {changes, stream, std::move(reply), stamp});
        return;
      } else {
        refusal = absl::ResourceExhaustedError(absl::StrCat(
            "job ", options_.job_id, " has ", kept_.size(),
            " answers that wait for the follower, which is the limit; wait for answers"));
      }
    }
  }
  if (!refusal.ok()) return reply->Refuse(refusal, stamp.generation);
  reply->Finish(stamp.generation, stamp.others, stamp.checkpoint);
}

absl::Status Replicator::Closed() const {
  return absl::NotFoundError(absl::StrCat("job ", options_.job_id, " was closed"));
}

void Replicator::ForgetStream(uint64_t stream) {
  std::deque<Answer> gone;  // destroyed without the lock
  MutexLock lock(&mutex_);
  for (size_t i = 0; i < kept_.size(); ++i) {
    if (kept_[i].stream == stream) gone.push_back(std::move(kept_[i]));
  }
  kept_.erase(std::remove_if(kept_.begin(), kept_.end(),
                             [](const Answer& answer) { return answer.reply == nullptr; }),
              kept_.end());
}

Replicator::Mark Replicator::ChangesNow() {
  MutexLock lock(&mutex_);
  return {gate_.session(), EndOfLog()};
}

Replicator::Mark Replicator::MarkNow() {
  MutexLock lock(&mutex_);
  marked_ = true;
  return {gate_.session(), EndOfLog()};
}

bool Replicator::Kept(const Mark& mark) {
  MutexLock lock(&mutex_);
  const bool kept = gate_.MayLeave(mark);
  if (kept) marked_ = false;
  return kept;
}

void Replicator::Pump() {
  std::shared_ptr<Session> session;
  {
    MutexLock lock(&mutex_);
    session = session_;
  }
  if (session != nullptr) PumpSession(session.get());
}

void Replicator::PumpSession(Session* session) {
  // One thread at a time sends, which keeps the changes in order. The others leave a note and go
  // on, so no worker's push waits for the stream of another.
  {
    MutexLock lock(&session->send_mutex);
    session->more = true;
    if (session->pumping || session->over) return;  // whoever pumps looks once more
    session->pumping = true;
  }
  while (true) {
    {
      MutexLock lock(&session->send_mutex);
      if (!session->more || session->over) {
        session->pumping = false;
        session->pumped.NotifyAll();
        return;
      }
      session->more = false;
    }
    try {
      Message message;
      while (session->log->Next(&message)) session->stream->Send(std::move(message));
    } catch (const std::bad_alloc&) {
      // Changes taken out of the log are lost, so this stream must send no later ones.
      session->log->FailWithoutMemory();
      MutexLock lock(&session->send_mutex);
      session->over = true;
    }
  }
}

// ------------------------------------------------------------------------------- the thread

void Replicator::Run() {
  Backoff backoff;
  while (true) {
    auto session = std::make_shared<Session>(options_.max_behind_bytes);
    {
      MutexLock lock(&mutex_);
      // Shards that await ranks still change without the log (Shard::Hear), so no image is made
      // yet.
      while (!stopping_ && !(gate_.state() == AckGate::State::kSeeding && options_.may_seed() &&
                             options_.transport != nullptr)) {
        changed_.WaitFor(&mutex_, kFollowerLook);
      }
      if (stopping_) return;
      session->number = gate_.BeginSession();
      session->assignment = assignments_;
      session_ = session;
      broken_ = absl::OkStatus();
      taken_bytes_ = sent_bytes_ = 0;
      answered_ = false;
      heard_ = looked_ = options_.clock->Now();
    }
    absl::Status status;
    try {
      status = Seed(session);
    } catch (const std::bad_alloc&) {
      status = absl::ResourceExhaustedError("no memory to send copies to the follower");
    }
    if (status.ok()) {
      backoff.Reset();
      Changed();
      status = Watch(*session);
    }
    EndSession(session, status);
    session.reset();
    MutexLock lock(&mutex_);
    // A follower that refuses at once must not be asked in a tight loop.
    const absl::Time until = options_.clock->Now() + backoff.Next();
    while (!stopping_ && options_.clock->Now() < until) changed_.WaitFor(&mutex_, kFollowerLook);
  }
}

void Replicator::EndSession(const std::shared_ptr<Session>& session, const absl::Status& why) {
  session->log->Close();
  bool news;
  {
    MutexLock lock(&mutex_);
    const AckGate::State before = gate_.state();
    gate_.Break();
    // An end that was asked for is no error.
    const bool wanted = session->assignment != assignments_ || stopping_;
    if (!wanted) error_ = std::string(why.message());
    news = gate_.state() != before || !wanted;
    session_ = nullptr;
  }
  {
    MutexLock lock(&session->send_mutex);
    session->over = true;
    // A thread may be inside of Send, which holds no lock. The stream must outlive that call.
    while (session->pumping) session->pumped.Wait(&session->send_mutex);
  }
  // Waits for its callbacks, which take the lock.
  session->stream.reset();
  if (news) Changed();
}

absl::Status Replicator::Check(const Session& session) {
  SLUICE_RETURN_IF_ERROR(session.log->status());
  MutexLock lock(&mutex_);
  if (stopping_) return absl::CancelledError("the job is closed");
  if (session.assignment != assignments_) {
    return absl::CancelledError("the route names no follower any more");
  }
  return broken_;
}

absl::Status Replicator::Seed(const std::shared_ptr<Session>& session) {
  ReplicaHeader header;
  ReplicaHello* const hello = header.mutable_hello();
  hello->set_protocol(kDataProtocol);
  hello->set_job_id(options_.job_id);
  hello->set_instance(options_.instance);
  hello->set_pass(options_.pass);
  PserverAddress to;
  {
    MutexLock lock(&mutex_);
    hello->set_pserver(static_cast<uint32_t>(self_));
    hello->set_generation(generation_);
    to = follower_;
  }
  uint64_t all = 0;
  for (const auto& shard : shards_) all += shard->bytes();
  {
    MutexLock lock(&mutex_);
    all_bytes_ = all;
  }
  if (to.address.empty()) return absl::CancelledError("the route names no follower any more");
  StreamCallbacks callbacks;
  const uint64_t number = session->number;
  callbacks.on_message = [this, number](Message message) { OnMessage(number, std::move(message)); };
  callbacks.on_closed = [this, number](absl::Status status) { OnClosed(number, status); };
  // Nobody pumps before the first image has begun: the log is empty until then.
  session->stream = options_.transport->Connect(to, std::move(callbacks));
  session->stream->Send(EncodeReplica(header, {}));
  // Before the first image: changes must not be set aside for a follower that does not answer.
  SLUICE_RETURN_IF_ERROR(AwaitImages(*session, 0, 0));
  for (const auto& shard : shards_) SLUICE_RETURN_IF_ERROR(SeedShard(session.get(), shard.get()));
  uint64_t sent;
  {
    MutexLock lock(&mutex_);
    sent = sent_bytes_;
  }
  // A follower that cannot be reached must not make workers wait.
  SLUICE_RETURN_IF_ERROR(AwaitImages(*session, sent, 0));
  {
    MutexLock lock(&mutex_);
    // A route may have ended the assignment meanwhile.
    if (session->assignment != assignments_) return absl::CancelledError("no follower");
    // Both in one critical section: what was acknowledged before is in front of `complete`.
    session->log->AddComplete();
    gate_.Hold();
    error_.clear();
    heard_ = options_.clock->Now();
  }
  PumpSession(session.get());
  return absl::OkStatus();
}

absl::Status Replicator::SeedShard(Session* session, Shard* shard) {
  for (int given_up = 0;;) {
    SLUICE_RETURN_IF_ERROR(Check(*session));
    // A sparse shard has one cut at a time, and a checkpoint goes before copies.
    options_.await_checkpoint();
    {
      MutexLock lock(&mutex_);
      heard_ = options_.clock->Now();  // a checkpoint may take long, and asks the follower nothing
    }
    const bool insists = given_up >= kGiveUps;
    if (!options_.turn->TryBegin(insists)) {
      MutexLock lock(&mutex_);
      changed_.WaitFor(&mutex_, kFollowerLook);
      continue;
    }
    absl::StatusOr<bool> sent;
    {
      ShardSeed seed;
      HeldSum held;
      std::unique_ptr<ShardCut> cut;
      try {
        cut = shard->BeginSeed(
            session->log, options_.writer->NewBudget(options_.available_memory()), &seed, &held);
        SeedSender sender(std::move(cut), std::move(seed), std::move(held));
        sent = SendImage(session, &sender);
      } catch (const std::bad_alloc&) {
        sent = absl::ResourceExhaustedError("no memory for the image of a shard");
      }
    }
    // A checkpoint has begun at the same moment.
    if (absl::IsFailedPrecondition(sent.status())) sent = false;
    // The changes since then would only fill the log: the next image has them.
    if (!sent.ok() || !*sent) shard->EndSeed();
    options_.turn->End();
    if (insists) Changed();  // a checkpoint may wait for its order
    SLUICE_RETURN_IF_ERROR(sent.status());
    if (!*sent) {
      ++given_up;
      MutexLock lock(&mutex_);
      changed_.WaitFor(&mutex_, kFollowerLook);
      continue;
    }
    session->log->Release(shard->table().id(), shard->index());
    PumpSession(session);
    return absl::OkStatus();
  }
}

absl::StatusOr<bool> Replicator::SendImage(Session* session, SeedSender* sender) {
  uint64_t before;
  {
    MutexLock lock(&mutex_);
    before = sent_bytes_;
  }
  uint64_t bytes = before;
  while (true) {
    // Asked before each piece, so that a checkpoint waits for one piece at most.
    if (options_.turn->wanted()) return false;
    SLUICE_RETURN_IF_ERROR(AwaitImages(*session, bytes, kSeedAheadBytes));
    Message message;
    SLUICE_ASSIGN_OR_RETURN(const bool more, sender->Next(&message, &bytes));
    if (!more) return true;
    {
      MutexLock lock(&mutex_);
      sent_bytes_ = bytes;
    }
    session->stream->Send(std::move(message));
  }
}

bool Replicator::IsSilent(absl::Time now) {
  if (now - looked_ > kStopped) heard_ = now;
  looked_ = now;
  return now - heard_ > options_.patience;
}

absl::Status Replicator::AwaitImages(const Session& session, uint64_t sent, uint64_t ahead) {
  while (true) {
    SLUICE_RETURN_IF_ERROR(Check(session));
    MutexLock lock(&mutex_);
    if (answered_ && sent - std::min(sent, taken_bytes_) <= ahead) return absl::OkStatus();
    if (ahead > 0 && options_.turn->wanted()) return absl::OkStatus();  // it is given up next
    if (IsSilent(options_.clock->Now())) {
      return absl::DeadlineExceededError("the follower does not take images");
    }
    changed_.WaitFor(&mutex_, kFollowerLook);
  }
}

absl::Status Replicator::Watch(const Session& session) {
  while (true) {
    SLUICE_RETURN_IF_ERROR(Check(session));
    MutexLock lock(&mutex_);
    const absl::Time now = options_.clock->Now();
    // A follower that has confirmed everything owes no answer.
    if (session.log->end() <= gate_.confirmed()) heard_ = now;
    if (IsSilent(now)) {
      return absl::DeadlineExceededError(absl::StrCat("the follower at ", follower_.address,
                                                      " has confirmed nothing for ",
                                                      absl::FormatDuration(options_.patience)));
    }
    changed_.WaitFor(&mutex_, kFollowerLook);
  }
}

// ---------------------------------------------------------------------------- the follower

void Replicator::OnMessage(uint64_t number, Message message) {
  const absl::StatusOr<DecodedReplica> decoded = DecodeReplica(std::move(message));
  std::vector<Answer> ready;
  std::shared_ptr<ChangeLog> log;
  bool news = false;
  {
    MutexLock lock(&mutex_);
    // A late message of an earlier stream says nothing about this one.
    if (session_ == nullptr || session_->number != number) return;
    if (!decoded.ok()) {
      broken_ = decoded.status();
      return changed_.NotifyAll();
    }
    const ReplicaHeader& header = decoded->header;
    if (header.code() != 0) {
      broken_ = absl::Status(static_cast<absl::StatusCode>(header.code()),
                             absl::StrCat("the follower at ", follower_.address,
                                          " says: ", Printable(header.message())));
      return changed_.NotifyAll();
    }
    log = session_->log;
    // Never more than was sent, whatever the peer says.
    gate_.Confirm(std::min<uint64_t>(header.confirmed(), log->end()));
    if (!answered_ || taken_bytes_ != header.seed_bytes()) changed_.NotifyAll();
    answered_ = true;
    taken_bytes_ = header.seed_bytes();
    heard_ = options_.clock->Now();
    ready = TakeReady();
    news = marked_;
  }
  log->Confirm(decoded->header.confirmed());
  Finish(std::move(ready));
  if (news) Changed();
}

void Replicator::OnClosed(uint64_t number, const absl::Status& status) {
  MutexLock lock(&mutex_);
  if (session_ == nullptr || session_->number != number) return;
  if (broken_.ok()) {
    broken_ = absl::UnavailableError(absl::StrCat(
        "the stream to the follower at ", follower_.address, " is over: ", status.message()));
  }
  changed_.NotifyAll();
}

void Replicator::FillReport(HostedJob* report) {
  MutexLock lock(&mutex_);
  Replication* const replication = report->mutable_replication();
  const AckGate::State state = gate_.state();
  replication->set_generation(generation_);
  replication->set_complete(state == AckGate::State::kHolding || state == AckGate::State::kVoiding);
  if (state == AckGate::State::kHolding) {
    replication->set_updates_behind(EndOfLog() - std::min(EndOfLog(), gate_.confirmed()));
  }
  replication->set_seed_bytes(all_bytes_);
  replication->set_seeded_bytes(std::min(taken_bytes_, all_bytes_));
  if (state != AckGate::State::kHolding) replication->set_error(Printable(error_));
}

void Replicator::Close() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  // The thread ends the stream, after which no callback takes answers out of kept_.
  if (thread_.joinable()) thread_.join();
  std::deque<Answer> kept;
  {
    MutexLock lock(&mutex_);
    kept.swap(kept_);
  }
  for (Answer& answer : kept) answer.reply->Refuse(Closed(), 0);
}

}  // namespace sluice
