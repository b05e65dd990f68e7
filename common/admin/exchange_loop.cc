#include "common/admin/exchange_loop.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/security/audit_log.h"

namespace sluice {
namespace {

// How long news may wait when there is no descriptor with which to wake the thread that polls.
constexpr absl::Duration kLook = absl::Milliseconds(20);
constexpr absl::Duration kLongestPoll = absl::Minutes(1);

absl::Time Now() { return Clock::Real()->Now(); }

}  // namespace

ExchangeLoop::ExchangeLoop(Limits limits, Work work)
    : limits_(limits),
      work_(std::move(work)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      admission_(limits.connections, limits.per_address, limits.per_address),
      threads_(std::make_unique<TaskThreads>(limits.threads, limits.connections)),
      poller_([this] { Run(); }) {}

ExchangeLoop::~ExchangeLoop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  Wake();
  poller_.join();
  // After the poller: it alone adds tasks.
  threads_.reset();  // runs the tasks that wait
  TakeNews();        // sends their answers as far as that is possible without waiting
  if (wake_ >= 0) close(wake_);
}

void ExchangeLoop::Add(int connection) {
  int refused = -1;
  {
    MutexLock lock(&mutex_);
    arrived_.push_back(connection);
    // The oldest goes, as in Admit: the newest may be the operator who wants to see what is wrong.
    if (arrived_.size() > limits_.connections) {  // faster than the thread that polls
      refused = arrived_.front();
      arrived_.pop_front();
    }
  }
  if (refused >= 0) {
    HttpExchange oldest(refused, work_.tls, limits_, Now());
    oldest.GiveUp(kConnectMethod, RefusalReason::kRoom, "connections come too fast");
    Report(&oldest);
  }
  Wake();
}

void ExchangeLoop::Wake() {
  const uint64_t one = 1;
  // Fails only when the counter is full, and then the poller is awake.
  if (wake_ >= 0) (void)!write(wake_, &one, sizeof(one));
}

void ExchangeLoop::Run() {
  for (;;) {
    {
      MutexLock lock(&mutex_);
      if (stopping_) return;
    }
    TakeNews();
    for (const auto& [exchange, ready] : Poll()) {
      if (ready) exchange->GoOn(Now());
      // Asked even when the client always sends something.
      if (Now() >= exchange->deadline()) exchange->Expire();
      Settle(exchange);
    }
  }
}

void ExchangeLoop::TakeNews() {
  std::deque<int> arrived;
  std::vector<std::pair<HttpExchange*, std::string>> answered;
  {
    MutexLock lock(&mutex_);
    arrived.swap(arrived_);
    answered.swap(answered_);
  }
  for (auto& [exchange, bytes] : answered) {
    // On this thread: exchanges belong to it, and handlers only make the text.
    exchange->Answer(std::move(bytes), Now());
    Settle(exchange);
  }
  // Only answers that have just begun can have made them too many.
  GiveUpOldAnswers();
  for (const int connection : arrived) Admit(connection);
}

void ExchangeLoop::Admit(int connection) {
  auto added = std::make_unique<HttpExchange>(connection, work_.tls, limits_, Now());
  HttpExchange* const exchange = added.get();
  exchanges_.emplace(exchange, std::move(added));
  for (const StreamAdmission::Id id : admission_.Open(exchange, {exchange->ip(), exchange->ip()})) {
    HttpExchange* const given_up = exchanges_.at(static_cast<const HttpExchange*>(id)).get();
    given_up->GiveUp(
        kConnectMethod, RefusalReason::kRoom,
        absl::StrCat("it had no complete request, and more than ", limits_.per_address,
                     " connections of one address or ", limits_.connections, " of all were open"));
    Settle(given_up);
  }
}

std::vector<std::pair<HttpExchange*, bool>> ExchangeLoop::Poll() {
  std::vector<pollfd> polled = {{wake_, POLLIN, 0}};
  std::vector<std::pair<HttpExchange*, bool>> exchanges;
  absl::Time end = Now() + (wake_ >= 0 ? kLongestPoll : kLook);
  for (const auto& [id, exchange] : exchanges_) {
    // A handler is reading the exchange.
    if (exchange->phase() == Phase::kReady) continue;
    polled.push_back({exchange->fd(), exchange->events(), 0});
    exchanges.emplace_back(exchange.get(), false);
    end = std::min(end, exchange->deadline());
  }
  // Rounded up, so that the deadline has passed afterwards.
  const absl::Duration wait = std::max(end - Now() + absl::Milliseconds(1), absl::ZeroDuration());
  poll(polled.data(), polled.size(), static_cast<int>(absl::ToInt64Milliseconds(wait)));
  for (size_t i = 0; i < exchanges.size(); ++i) exchanges[i].second = polled[i + 1].revents != 0;
  uint64_t woken;
  if (polled[0].revents != 0) (void)!read(wake_, &woken, sizeof(woken));
  return exchanges;
}

void ExchangeLoop::Report(HttpExchange* exchange) const {
  const auto refusal = exchange->TakeRefusal();
  if (refusal.has_value() && work_.on_refused) work_.on_refused(*refusal);
}

void ExchangeLoop::Settle(HttpExchange* exchange) {
  Report(exchange);
  if (exchange->phase() == Phase::kReady) {
    admission_.Spoke(exchange);
    // Exchanges that are ready are never erased, so the pointer holds until the answer comes.
    const bool added = threads_->Add([this, exchange] {
      std::string answer = work_.answer(*exchange);
      {
        MutexLock lock(&mutex_);
        answered_.emplace_back(exchange, std::move(answer));
      }
      Wake();
    });
    if (!added) {
      exchange->GiveUp(kRequestMethod, RefusalReason::kRoom, "too many requests wait");
      Report(exchange);
    }
  }
  if (exchange->phase() != Phase::kOver) return;
  admission_.Closed(exchange);
  exchanges_.erase(exchange);
}

void ExchangeLoop::GiveUpOldAnswers() {
  std::vector<HttpExchange*> answering;
  for (const auto& [id, exchange] : exchanges_)
    if (exchange->phase() == Phase::kAnswer) answering.push_back(exchange.get());
  if (answering.size() <= limits_.answers) return;
  std::sort(answering.begin(), answering.end(),
            [](const auto* a, const auto* b) { return a->deadline() < b->deadline(); });
  answering.resize(answering.size() - limits_.answers);
  for (HttpExchange* const oldest : answering) {
    oldest->GiveUp(kRequestMethod, RefusalReason::kRoom,
                   absl::StrCat("the client has not taken its answer, and more than ",
                                limits_.answers, " answers were being sent"));
    Settle(oldest);
  }
}

}  // namespace sluice
