#include "client/client_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/pull_pieces.h"
#include "common/base/status_macros.h"
#include "common/transport/retry.h"

namespace sluice {

absl::StatusOr<std::unique_ptr<ClientCore>> ClientCore::Create(ParameterClientOptions options) {
  if (options.transport == nullptr || options.clock == nullptr) {
    return absl::InvalidArgumentError("ParameterClient needs a transport and a clock");
  }
  ShardIndex index(options.tables);
  SLUICE_RETURN_IF_ERROR(CheckRoute(index, options.route));
  std::unique_ptr<ClientCore> core(new ClientCore(std::move(options), std::move(index)));
  {
    MutexLock lock(&core->mu_);
    After none;  // nothing is open yet
    core->ApplyRoute(core->options_.route, &none);
  }
  // Last: the loop's thread uses the finished object at once.
  core->loop_.Start();
  return core;
}

ClientCore::ClientCore(ParameterClientOptions options, ShardIndex index)
    : options_(std::move(options)),
      index_(std::move(index)),
      fetcher_(&index_, options_.get_route, options_.clock),
      loop_(options_.clock, [this] { return OpenStreamsAndFetchRoute(); }),
      waiter_(options_.clock, options_.limits.timeout, &changed_,
              [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { LookForRoute(); }),
      routes_(&index_),
      window_(&index_),
      operations_(options_.pipeline_depth),
      requests_(&index_, &routes_, &window_, options_.limits.max_message_bytes) {}

ClientCore::~ClientCore() {
  std::vector<PserverLink*> links;
  {
    MutexLock lock(&mu_);
    waiter_.Fail(absl::CancelledError("the client was destroyed"));
    for (auto& link : links_) links.push_back(link.get());
  }
  // After this no link is opened any more.
  loop_.Stop();
  // All streams end before any link is destroyed: a callback of one may queue a message at another.
  for (PserverLink* link : links) link->Shutdown();
}

void ClientCore::After::Run() {
  // Messages leave before memory is freed: a pserver waits for the former, nobody for the latter.
  for (PserverLink* link : links) link->Flush();
  garbage.clear();
}

uint64_t ClientCore::last_sequence() const {
  MutexLock lock(&mu_);
  return window_.last();
}

uint64_t ClientCore::acknowledged() const {
  MutexLock lock(&mu_);
  return window_.delivery().released();
}

uint64_t ClientCore::checkpoint_seen() const {
  MutexLock lock(&mu_);
  return checkpoint_seen_;
}

absl::Time ClientCore::excused_at() const {
  MutexLock lock(&mu_);
  return waiter_.excused_at();
}

Route ClientCore::route() const {
  MutexLock lock(&mu_);
  return routes_.route();
}

absl::Status ClientCore::failure() const {
  MutexLock lock(&mu_);
  return waiter_.failure();
}

absl::Status ClientCore::CheckRoom() const {
  if (window_.size() < options_.limits.max_frames &&
      operations_.size() < options_.limits.max_pulls) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      absl::StrCat(window_.size(), " pushes and ", operations_.size(),
                   " pulls are outstanding; call WaitPushes and WaitPull between them"));
}

absl::Status ClientCore::PushEarly(uint32_t table, PushFrame frame) {
  After after;
  {
    MutexLock lock(&mu_);
    SLUICE_RETURN_IF_ERROR(waiter_.failure());
    if (!window_.open()) SLUICE_RETURN_IF_ERROR(CheckRoom());
    SLUICE_RETURN_IF_ERROR(window_.AddEarly(table, std::move(frame), operations_.pulled_others()));
    epochs_ended_ = 0;
    Pump(&after);
  }
  after.Run();
  return absl::OkStatus();
}

absl::Status ClientCore::Push(PushFrame frame, std::shared_ptr<PullOperation> op, Ticket* ticket) {
  After after;
  {
    MutexLock lock(&mu_);
    SLUICE_RETURN_IF_ERROR(waiter_.failure());
    if (!window_.open()) SLUICE_RETURN_IF_ERROR(CheckRoom());
    SLUICE_RETURN_IF_ERROR(window_.Add(std::move(frame), operations_.pulled_others()));
    // A push after the end of an epoch withdraws it, here as at the pservers.
    epochs_ended_ = 0;
    if (op != nullptr) {
      // The pulled values must contain this push, so the pull follows it to each shard.
      op->set_after(window_.last());
      *ticket = operations_.Add(std::move(op), window_.last());
    }
    Pump(&after);
  }
  after.Run();
  return absl::OkStatus();
}

ClientCore::Ticket ClientCore::Start(absl::StatusOr<std::shared_ptr<PullOperation>> op,
                                     bool to_all) {
  After after;
  Ticket ticket;
  {
    MutexLock lock(&mu_);
    if (op.ok() && operations_.size() >= options_.limits.max_pulls) {
      op = absl::ResourceExhaustedError(
          absl::StrCat(operations_.size(), " pulls are outstanding; call WaitPull for each"));
    }
    // The error comes with the wait, so that callers handle errors in one place.
    if (!op.ok()) return operations_.AddFailed(op.status());
    if (to_all) (*op)->AddressAll(routes_);
    // A pserver that takes over shards learns it from the next hello (HelloTo).
    if ((*op)->purpose().end_epoch) epochs_ended_ = (*op)->purpose().epoch + 1;
    ticket = operations_.Add(*std::move(op), window_.last());
    Pump(&after);
  }
  after.Run();
  return ticket;
}

std::optional<absl::Status> ClientCore::WaitUnless(Ticket ticket, const std::atomic<bool>* stop) {
  std::shared_ptr<PullOperation> op;  // destroyed after the lock is released
  MutexLock lock(&mu_);
  absl::StatusOr<std::shared_ptr<PullOperation>> found = operations_.Find(ticket);
  if (!found.ok()) {
    operations_.Erase(ticket);
    return found.status();
  }
  op = *std::move(found);
  const absl::Status status = waiter_.Until(
      &mu_, [&] { return op->Done() || (stop != nullptr && *stop); },
      [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return Describe(*op); });
  if (status.ok() && !op->Done()) return std::nullopt;
  // From here on the caller may free the arrays.
  op->Abandon();
  waiter_.UntilDone(&mu_, [&] { return !op->writing(); });
  // No gradient is computed from the values of an evaluation.
  if (status.ok() && !op->purpose().evaluation) operations_.OnPulled(op->others());
  if (status.ok()) checkpoint_seen_ = op->checkpoint();
  operations_.Erase(ticket);
  return status;
}

void ClientCore::Drop(Ticket ticket) {
  std::shared_ptr<PullOperation> op;  // destroyed after the lock is released
  MutexLock lock(&mu_);
  if (absl::StatusOr<std::shared_ptr<PullOperation>> found = operations_.Find(ticket); found.ok()) {
    op = *std::move(found);
    op->Abandon();
    waiter_.UntilDone(&mu_, [&] { return !op->writing(); });
  }
  operations_.Erase(ticket);
}

absl::Status ClientCore::WaitPushes(uint64_t in_flight) {
  MutexLock lock(&mu_);
  return waiter_.Until(
      &mu_,
      [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return window_.unacknowledged() <= in_flight; },
      [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return DescribePushes(); });
}

absl::Status ClientCore::RefreshRoute() {
  MutexLock lock(&mu_);
  // Counts answers and not generations: an answer that brings nothing new ends the wait too.
  const uint64_t before = routes_.applied();
  WantRoute();
  return waiter_.Until(
      &mu_, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return routes_.applied() > before; },
      [] { return std::string("route from the scheduler"); });
}

void ClientCore::NoteGeneration(uint64_t generation) {
  MutexLock lock(&mu_);
  // The scheduler tells the worker before any pserver refuses a request, which saves that round
  // trip.
  if (generation > routes_.generation()) LookForRoute();
}

void ClientCore::Cancel() {
  MutexLock lock(&mu_);
  waiter_.Fail(absl::CancelledError("the job is over for this worker"));
}

std::string ClientCore::WaitingFor() const {
  MutexLock lock(&mu_);
  return waiter_.Describe();
}

std::string ClientCore::DescribeLink(uint32_t link) const {
  return absl::StrCat(routes_.Name(link), " (", links_[link]->State(),
                      routes_.vacant(link) ? "; it is lost, and no process has taken over yet" : "",
                      ")");
}

std::string ClientCore::Describe(const PullOperation& op) const {
  const uint32_t link = op.WaitsFor(routes_);
  if (link == ShardIndex::kNone) return op.purpose().what;
  return absl::StrCat(op.purpose().what, " from ", DescribeLink(link));
}

std::string ClientCore::DescribePushes() const {
  if (window_.unacknowledged() == 0) return "acknowledgement";
  const Delivery& delivery = window_.delivery();
  return absl::StrCat("acknowledgement of push ", delivery.released() + 1, " from ",
                      DescribeLink(delivery.SlowestPserver()));
}

absl::Time ClientCore::OpenStreamsAndFetchRoute() {
  std::vector<std::pair<PserverLink*, Hello>> links;
  uint64_t generation;
  absl::Time due;
  {
    MutexLock lock(&mu_);
    generation = routes_.generation();
    due = waiter_.failure().ok() ? fetcher_.due() : absl::InfiniteFuture();
    for (uint32_t link = 0; link < routes_.links(); ++link) {
      // The frames that a link has acknowledged are known for sure only when its requests are lost.
      if (routes_.in_use(link) && !open_[link])
        links.emplace_back(links_[link].get(), HelloTo(link));
    }
  }
  // Without the lock: fetching a route and opening a stream may both take seconds.
  if (due <= options_.clock->Now()) {
    FetchRoute(generation);
    return absl::InfinitePast();  // the route may have brought links to open
  }
  for (const auto& [link, hello] : links)
    due = std::min(due, link->ConnectIfDue(generation, hello));
  return due;
}

Hello ClientCore::HelloTo(uint32_t link) const {
  Hello hello;
  window_.AddAcknowledged(link, &hello);
  hello.set_epochs_ended(epochs_ended_);
  return hello;
}

void ClientCore::FetchRoute(uint64_t generation) {
  const absl::StatusOr<Route> route = fetcher_.Fetch(generation);
  After after;
  {
    MutexLock lock(&mu_);
    if (route.ok()) {
      ApplyRoute(*route, &after);
      // The generation rises with each loss of a worker, whose replacement has its own bound.
      if (route->vacant_size() > 0 || route->generation() > generation) waiter_.Excuse();
      Pump(&after);
    } else if (GotNoAnswer(route.status())) {
      // The fetcher asks again. Only a clear refusal ends the client.
      waiter_.NoteRefusal(std::string(route.status().message()));
    } else {
      waiter_.Fail(route.status());
    }
  }
  changed_.Notify();
  after.Run();
}

void ClientCore::ApplyRoute(const Route& route, After* after) {
  const RouteMap::Change change = routes_.Apply(route);
  // A Hello names the shards that the link has, so a link that gains one says hello again.
  for (uint32_t link = 0; link < links_.size(); ++link) {
    if (!change.gained[link]) continue;
    links_[link]->Break(absl::UnavailableError("it serves more shards of the job now"));
    BreakLink(link, after);
  }
  for (uint32_t link = links_.size(); link < routes_.links(); ++link) {
    AddLink(routes_.address(link));
  }
  window_.OnRoute(routes_.owners());
  for (auto& [ticket, op] : operations_.all()) op->OnRoute(routes_, change);
  loop_.Wake();
}

void ClientCore::AddLink(const PserverAddress& to) {
  PserverLink::Options link;
  link.transport = options_.transport;
  link.clock = options_.clock;
  link.listener = this;
  link.index = static_cast<uint32_t>(links_.size());
  link.to = to;
  link.hello.set_protocol(kDataProtocol);
  link.hello.set_job_id(options_.job_id);
  link.hello.set_rank(options_.rank);
  // Fences earlier lives of the rank at this pserver.
  link.hello.set_incarnation(options_.incarnation);
  link.hello.set_instance(options_.instance);
  link.hello.set_pass(options_.pass);
  links_.push_back(std::make_unique<PserverLink>(std::move(link)));
  open_.push_back(false);
}

void ClientCore::WantRoute() {
  fetcher_.Want();
  loop_.Wake();
}

void ClientCore::LookForRoute() {
  if (options_.get_route != nullptr) WantRoute();
}

void ClientCore::Pump(After* after) {
  if (!waiter_.failure().ok()) return;
  for (uint32_t link = 0; link < links_.size(); ++link) {
    if (!open_[link] || !routes_.in_use(link)) continue;
    // Frames first: a frame can carry a pull with it, and other pulls wait until it has been sent.
    while (auto send = window_.Next(link)) {
      const uint64_t sequence = send->sequence;
      SendRequest(link, std::move(send), operations_.OfFrame(sequence), after);
    }
    for (const auto& [ticket, op] : operations_.all()) {
      if (op->Wants(link, routes_, window_.delivery())) {
        SendRequest(link, std::nullopt, op, after);
      }
    }
  }
  // A pserver has refused parts of shards that it does not have; only a newer route says who does.
  if (window_.delivery().needs_route() && !fetcher_.wanted()) WantRoute();
}

void ClientCore::SendRequest(uint32_t link, std::optional<Delivery::Send> send,
                             std::shared_ptr<PullOperation> op, After* after) {
  absl::StatusOr<std::vector<Message>> messages =
      requests_.Begin(link, std::move(send), std::move(op));
  if (!messages.ok()) {
    // A message that is too long stays too long, so trying again cannot help.
    waiter_.Fail(messages.status());
    return;
  }
  for (Message& message : *messages) links_[link]->Enqueue(std::move(message));
  after->links.push_back(links_[link].get());
}

void ClientCore::OnReply(uint32_t link, DecodedReply reply) {
  const ReplyHeader& header = reply.header;
  const uint64_t id = header.request_id();
  After after;
  absl::StatusOr<std::vector<PullOperation::Destination>> destinations =
      std::vector<PullOperation::Destination>();
  std::shared_ptr<PullOperation> op;
  bool taken = false;  // the reply belongs to a request that is still outstanding
  {
    MutexLock lock(&mu_);
    if (requests_.Has(id, link) && header.code() != 0) {
      RefuseRequest(link, id, header, &after);
    } else if (requests_.Has(id, link)) {
      taken = true;
      std::string refusal = requests_.Note(id, header);
      if (!refusal.empty()) waiter_.NoteRefusal(std::move(refusal));
      op = requests_.OperationOf(id);
      destinations = FindDestinations(index_, reply, op.get());
      if (!destinations.ok()) op = nullptr;
      if (op != nullptr) op->BeginWrite(*destinations);
    }
  }
  // Without the lock, so that the replies of several pservers are copied at the same time.
  // BeginWrite has announced the copy: until EndWrite no call returns to the caller, who owns the
  // arrays.
  absl::Status status = destinations.status();
  if (taken && status.ok()) status = CopyValues(index_, *destinations, &reply.payload);
  bool changed;
  {
    MutexLock lock(&mu_);
    if (op != nullptr) op->EndWrite(*destinations);
    if (!status.ok()) {
      waiter_.Fail(
          absl::Status(status.code(), absl::StrCat(routes_.Name(link), ": ", status.message())));
    } else if (taken && header.last() && requests_.Has(id, link)) {
      FinishRequest(link, id, &after);
    }
    Pump(&after);
    // Only the last message of a reply can complete anything, so earlier ones wake no caller.
    changed = !taken || header.last() || (op != nullptr && op->abandoned());
    after.garbage.push_back(std::move(op));
  }
  if (changed) changed_.Notify();
  after.Run();
}

void ClientCore::FinishRequest(uint32_t link, uint64_t id, After* after) {
  const RequestTable::Outcome outcome = requests_.Finish(id, &after->garbage);
  const std::string& refusal = waiter_.last_refusal();
  if (!outcome.status.ok()) {
    waiter_.Fail(
        absl::Status(outcome.status.code(), absl::StrCat(outcome.status.message(), "; ", refusal)));
  }
  if (outcome.left_out) {
    if (refusal.empty()) {
      waiter_.NoteRefusal(absl::StrCat(routes_.Name(link), " left shards out of its answer"));
    }
    WantRoute();
  }
}

void ClientCore::RefuseRequest(uint32_t link, uint64_t id, const ReplyHeader& header,
                               After* after) {
  const auto code = static_cast<absl::StatusCode>(header.code());
  const absl::Status why(code, absl::StrCat(routes_.Name(link), ": ", header.message()));
  waiter_.NoteRefusal(std::string(why.message()));
  if (RouteIsStale(code)) {
    requests_.Refuse(id, &after->garbage);
    WantRoute();
  } else if (PserverNotReady(code)) {
    // The pserver restarts, or awaits a hello: open a new stream after a pause.
    links_[link]->Break(why);
    BreakLink(link, after);
  } else {
    waiter_.Fail(why);
  }
}

void ClientCore::BreakLink(uint32_t link, After* after) {
  open_[link] = false;
  // The contents of these requests are needed again, and are sent once a new stream is open.
  requests_.LoseAll(link, &after->garbage);
  loop_.Wake();
}

void ClientCore::OnOpen(uint32_t link) {
  After after;
  {
    MutexLock lock(&mu_);
    // A route may have broken the link while this call was on its way. ConnectIfDue opens it again.
    if (!links_[link]->open()) return;
    open_[link] = true;
    window_.OnOpen(link);
    Pump(&after);
  }
  changed_.Notify();
  after.Run();
}

void ClientCore::OnBroken(uint32_t link) {
  After after;
  {
    MutexLock lock(&mu_);
    // It could not be opened at all: perhaps another process serves its shards by now.
    if (!open_[link]) LookForRoute();
    BreakLink(link, &after);
  }
  after.Run();
}

void ClientCore::OnHelloRefused(uint32_t link, const ReplyHeader& header) {
  const auto code = static_cast<absl::StatusCode>(header.code());
  After after;
  {
    MutexLock lock(&mu_);
    BreakLink(link, &after);
    std::string why = absl::StrCat(routes_.Name(link), " refused Hello: ", header.message());
    if (RouteIsStale(code)) {
      waiter_.NoteRefusal(std::move(why));
      WantRoute();
    } else {
      waiter_.Fail(absl::Status(code, why));
    }
  }
  after.Run();
}

}  // namespace sluice
