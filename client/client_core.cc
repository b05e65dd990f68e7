#include "client/client_core.h"

#include <sched.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

// Waits look at the clock so often, since it may be one that a test moves.
constexpr absl::Duration kLook = absl::Milliseconds(50);
// A wait looks so long before it sleeps, and lets other threads run meanwhile: about what it costs
// to go to sleep and be woken, and the answer to a small request comes in that time.
constexpr std::chrono::microseconds kLookAwake(50);

}  // namespace

absl::StatusOr<std::unique_ptr<ClientCore>> ClientCore::Create(ParameterClient::Options options) {
  if (options.transport == nullptr) {
    return absl::InvalidArgumentError("ParameterClient needs a transport");
  }
  if (options.clock == nullptr) options.clock = Clock::Real();
  SLUICE_ASSIGN_OR_RETURN(
      TableLayouts tables,
      CreateTableLayouts(options.job.tables(), options.job.config().train().seed()));
  std::unique_ptr<ClientCore> core(
      new ClientCore(std::move(options), ShardIndex(std::move(tables))));
  SLUICE_RETURN_IF_ERROR(core->CheckRoute(core->options_.job.route()));
  {
    MutexLock lock(&core->mu_);
    SLUICE_RETURN_IF_ERROR(core->ApplyRoute(core->options_.job.route()));
  }
  core->routes_ = std::thread([c = core.get()] { c->RunRoutes(); });
  return core;
}

ClientCore::ClientCore(ParameterClient::Options options, ShardIndex index)
    : options_(std::move(options)),
      index_(std::move(index)),
      clock_(options_.clock),
      owner_(index_.size(), 0),
      delivery_(owner_) {}

ClientCore::~ClientCore() {
  std::vector<PserverLink*> links;
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    Fail(absl::CancelledError("the client is gone"));
    for (auto& link : links_) links.push_back(link.get());
  }
  wake_.NotifyAll();
  if (routes_.joinable()) routes_.join();
  // All streams end before any link goes: a callback of one may queue a message at another.
  for (PserverLink* link : links) link->Shutdown();
}

void ClientCore::After::Run() {
  for (PserverLink* link : links) link->Flush();
  garbage.clear();
}

uint64_t ClientCore::last_sequence() const {
  MutexLock lock(&mu_);
  return delivery_.last();
}

Route ClientCore::route() const {
  MutexLock lock(&mu_);
  return route_;
}

absl::Status ClientCore::status() const {
  MutexLock lock(&mu_);
  return status_;
}

absl::Status ClientCore::OpenFrame(PushFrame frame) {
  SLUICE_RETURN_IF_ERROR(status_);
  const uint64_t next = delivery_.last() + 1;
  if (frame.sequence == 0) frame.sequence = next;
  if (frame.sequence != next && delivery_.last() != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "push ", frame.sequence, " does not follow push ", delivery_.last(), " of this client"));
  }
  if (frames_.size() >= kMaxFrames || operations_.size() >= kMaxOperations) {
    return absl::ResourceExhaustedError(
        absl::StrCat(frames_.size(), " pushes and ", operations_.size(),
                     " pulls are outstanding; call WaitPushes and WaitPull between them"));
  }
  frame.open = true;
  frame.pulled_others = others_;
  delivery_.AddOpen(frame.sequence);
  frames_.push_back(std::make_shared<PushFrame>(std::move(frame)));
  return absl::OkStatus();
}

absl::Status ClientCore::CloseFrame(PushFrame rest) {
  SLUICE_RETURN_IF_ERROR(status_);
  PushFrame& frame = *frames_.back();
  for (uint32_t flat = 0; flat < index_.size(); ++flat) {
    if (frame.parts[flat].rows > 0 && rest.parts[flat].rows > 0)
      return Twice(index_.table_of(flat));
  }
  for (uint32_t flat = 0; flat < index_.size(); ++flat) {
    if (frame.parts[flat].rows == 0) frame.parts[flat] = std::move(rest.parts[flat]);
  }
  return absl::OkStatus();
}

absl::Status ClientCore::PushEarly(uint32_t table, PushFrame frame) {
  After after;
  {
    MutexLock lock(&mu_);
    const uint32_t begin = index_.begin(table), end = begin + index_.tables()[table]->num_shards();
    if (!frames_.empty() && frames_.back()->open) {
      SLUICE_RETURN_IF_ERROR(status_);
      for (uint32_t flat = begin; flat < end; ++flat) {
        if (frames_.back()->parts[flat].rows != 0) return Twice(index_.table_of(flat));
        frames_.back()->parts[flat] = std::move(frame.parts[flat]);
      }
    } else {
      SLUICE_RETURN_IF_ERROR(OpenFrame(std::move(frame)));
    }
    // One part for every pserver stays behind: with the request that brings it the frame counts.
    std::vector<uint32_t> behind(links_.size(), 0);
    for (uint32_t flat = 0; flat < index_.size(); ++flat) {
      if (!delivery_.ready(flat)) ++behind[owner_[flat]];
    }
    for (uint32_t flat = begin; flat < end; ++flat) {
      if (--behind[owner_[flat]] > 0) delivery_.MakeReady(flat);
    }
    Pump(&after);
  }
  after.Run();
  return absl::OkStatus();
}

absl::Status ClientCore::Push(PushFrame frame, std::shared_ptr<PullOperation> op, Ticket* ticket) {
  After after;
  {
    MutexLock lock(&mu_);
    if (!frames_.empty() && frames_.back()->open) {
      SLUICE_RETURN_IF_ERROR(CloseFrame(std::move(frame)));
    } else {
      SLUICE_RETURN_IF_ERROR(OpenFrame(std::move(frame)));
    }
    frames_.back()->open = false;
    for (uint32_t flat = 0; flat < index_.size(); ++flat) delivery_.MakeReady(flat);
    if (op != nullptr) {
      op->after = frames_.back()->sequence;
      SetStep(op.get());
      op->others.resize(links_.size());
      *ticket = next_ticket_++;
      operations_.emplace(*ticket, std::move(op));
    }
    Pump(&after);
    ReleaseFrames(&after);
  }
  after.Run();
  return absl::OkStatus();
}

ClientCore::Ticket ClientCore::Start(std::shared_ptr<PullOperation> op, bool to_all) {
  After after;
  Ticket ticket;
  {
    MutexLock lock(&mu_);
    ticket = next_ticket_++;
    if (operations_.size() >= kMaxOperations && op->status.ok()) {
      op->status = absl::ResourceExhaustedError(
          absl::StrCat(operations_.size(), " pulls are outstanding; call WaitPull for each"));
    }
    if (!op->status.ok()) {
      op->pieces.clear();
      op->commit_sequence = 0;
    } else {
      SetStep(op.get());
      if (to_all) AddControls(op.get());
      // Nothing is in the pipeline at the end of an epoch.
      if (op->end_epoch) pulled_for_ = delivery_.last();
    }
    op->others.resize(links_.size());
    operations_.emplace(ticket, std::move(op));
    Pump(&after);
  }
  after.Run();
  return ticket;
}

void ClientCore::SetStep(PullOperation* op) {
  if (op->exchange || op->evaluation || op->commit_sequence > 0 || op->pieces.empty()) return;
  const uint64_t depth = std::max<uint64_t>(options_.job.config().train().pipeline_depth(), 1);
  const uint64_t pushed = delivery_.last();
  // Bounded by the depth: a worker may also pull outside its steps.
  pulled_for_ = std::min(std::max(pulled_for_, pushed) + 1, pushed + depth);
  op->for_push = pulled_for_;
}

void ClientCore::AddControls(PullOperation* op) {
  op->controls.clear();
  for (uint32_t link = 0; link < links_.size(); ++link) {
    if (pserver_of_link_[link] != ShardIndex::kNone) op->controls.push_back({link});
  }
  if (op->commit_sequence > 0) CoverPservers(op);
}

void ClientCore::CoverPservers(PullOperation* op) {
  std::vector<bool> covered(links_.size(), false);
  for (const auto& piece : op->pieces) covered[owner_[piece.flat]] = true;
  // Sparse shards first: of a dense one the values come too, to be dropped.
  for (const bool sparse : {true, false}) {
    for (uint32_t flat = 0; flat < index_.size(); ++flat) {
      const TableLayout& table = index_.table_of(flat);
      if (covered[owner_[flat]] || table.sparse() != sparse) continue;
      covered[owner_[flat]] = true;
      PullOperation::Piece piece;
      piece.flat = flat;
      piece.rows = sparse ? 0 : static_cast<uint32_t>(table.ShardElements(index_.shard_of(flat)));
      op->piece_of[flat] = static_cast<uint32_t>(op->pieces.size());
      op->pieces.push_back(std::move(piece));
    }
  }
}

absl::Status ClientCore::Wait(Ticket ticket) {
  std::shared_ptr<PullOperation> op;
  MutexLock lock(&mu_);
  const auto it = operations_.find(ticket);
  if (it == operations_.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("ticket ", ticket, " was never given, or was waited for already"));
  }
  op = it->second;
  absl::Status status = op->status;
  if (status.ok()) {
    status = WaitUntil([&] { return op->Done(); },
                       [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return Describe(*op); });
  }
  // From here on the caller may free the arrays.
  op->abandoned = true;
  while (op->writers > 0) changed_.Wait(&mu_);
  if (status.ok() && !op->evaluation) {
    others_.resize(links_.size());
    for (size_t link = 0; link < op->others.size(); ++link) {
      others_[link] = std::max(others_[link], op->others[link]);
    }
  }
  operations_.erase(ticket);
  return status;
}

absl::Status ClientCore::WaitPushes(uint64_t in_flight) {
  MutexLock lock(&mu_);
  return WaitUntil([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(
                       mu_) { return delivery_.last() - delivery_.released() <= in_flight; },
                   [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return DescribePushes(); });
}

absl::Status ClientCore::RefreshRoute() {
  MutexLock lock(&mu_);
  const uint64_t before = routes_fetched_;
  WantRoute("");
  return WaitUntil([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return routes_fetched_ > before; },
                   [&] { return std::string("route from the scheduler"); });
}

absl::Status ClientCore::WaitUntil(const std::function<bool()>& done,
                                   const std::function<std::string()>& what) {
  const absl::Time begin = clock_->Now();
  waiting_for_ = what;
  waiting_since_ = begin;
  const auto look_until = std::chrono::steady_clock::now() + kLookAwake;
  absl::Status status;
  while (!done()) {
    status = status_;
    if (!status.ok()) break;
    const absl::Duration left = options_.timeout - (clock_->Now() - begin);
    if (left <= absl::ZeroDuration()) {
      status = absl::DeadlineExceededError(
          absl::StrCat(what(), " did not come within ", absl::FormatDuration(options_.timeout),
                       last_refusal_.empty() ? "" : "; last refusal: ", last_refusal_,
                       "; see that pserver's log, or raise train.step_timeout_s"));
      break;
    }
    WaitForChange(std::min(left, kLook), look_until);
  }
  waiting_for_ = nullptr;
  return status;
}

void ClientCore::WaitForChange(absl::Duration at_most,
                               std::chrono::steady_clock::time_point look_until) {
  if (std::chrono::steady_clock::now() >= look_until) {
    changed_.WaitFor(&mu_, absl::ToChronoNanoseconds(at_most));
    return;
  }
  // Relaxed: what has changed is read under mu_, and a change that is missed here is met by done().
  const uint64_t before = changes_.load(std::memory_order_relaxed);
  mu_.Unlock();
  do {
    sched_yield();
  } while (changes_.load(std::memory_order_relaxed) == before &&
           std::chrono::steady_clock::now() < look_until);
  mu_.Lock();
}

void ClientCore::Changed() {
  changes_.fetch_add(1, std::memory_order_relaxed);
  changed_.NotifyAll();
}

void ClientCore::Fail(const absl::Status& status) {
  if (status_.ok()) status_ = status;
  Changed();
}

void ClientCore::Cancel() {
  MutexLock lock(&mu_);
  Fail(absl::CancelledError("the job is over for this worker"));
}

std::string ClientCore::LinkText(uint32_t link) const {
  const uint32_t pserver = pserver_of_link_[link];
  return absl::StrCat("pserver ", pserver == ShardIndex::kNone ? "?" : absl::StrCat(pserver),
                      " at ", links_[link]->address());
}

std::string ClientCore::Describe(const PullOperation& op) const {
  uint32_t link = ShardIndex::kNone;
  for (const auto& control : op.controls) {
    if (control.state != PullOperation::State::kDone) link = control.link;
  }
  for (const auto& piece : op.pieces) {
    if (piece.state != PullOperation::State::kDone) link = owner_[piece.flat];
  }
  if (link == ShardIndex::kNone) return op.what;
  return absl::StrCat(op.what, " from ", LinkText(link), " (", links_[link]->State(), ")");
}

std::string ClientCore::DescribePushes() const {
  if (delivery_.released() >= delivery_.last()) return "acknowledgement";
  const uint32_t link = delivery_.SlowestPserver();
  return absl::StrCat("acknowledgement of push ", delivery_.released() + 1, " from ",
                      LinkText(link), " (", links_[link]->State(), ")");
}

std::string ClientCore::WaitingFor() const {
  MutexLock lock(&mu_);
  if (waiting_for_ == nullptr) return "";
  const double seconds = absl::ToDoubleSeconds(clock_->Now() - waiting_since_);
  return absl::StrCat("waiting for ", waiting_for_(),
                      seconds < 0.1 ? "" : absl::StrFormat(" for %.1f s", seconds));
}

}  // namespace sluice
