// Serves many HTTP connections with one thread that polls them and a few that answer.
//
// A connection reaches an answering thread only with a complete request, and leaves it with the
// answer, which the polling thread sends. So a client that is silent, slow or does not read holds
// no thread. Handshakes are done by the polling thread, one step at a time: a flood of them can
// take one core, and each connection still gets its turn.
//
// At most `connections` are open, and at most `per_address` of one client address. A newcomer
// beyond that takes the place of the oldest connection without a complete request, of its own
// address or of the address that has most. So a flood closes its own connections, and a client that
// sends its request at once is served. At most `answers` are being sent; beyond that the oldest is
// given up.
//
// Memory: `connections` exchanges (http_exchange.h), and the answers being sent or waiting for
// that.
//
// Thread safety: safe from any thread.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/admin/http_exchange.h"
#include "common/base/mutex.h"
#include "common/base/task_threads.h"
#include "common/transport/stream_admission.h"

namespace sluice {

class ExchangeLoop {
 public:
  struct Limits : HttpExchange::Limits {
    int threads = 2;  // that answer
    size_t connections = 256;
    size_t per_address = 64;
    size_t answers = 16;
  };
  struct Work {
    TlsServer* tls = nullptr;  // null: plain HTTP. Outlives the loop.
    // Returns the bytes that answer a complete request. Runs on the threads that answer.
    std::function<std::string(const HttpExchange& exchange)> answer;
    // Told of each connection or request that is refused or given up. Runs on the threads that
    // poll and accept, and must not wait. May be empty.
    std::function<void(const HttpRefusal& refusal)> on_refused;
  };

  ExchangeLoop(Limits limits, Work work);
  // Closes all connections, after the requests that are complete have been answered.
  ~ExchangeLoop();

  // Takes over a connection that has been accepted. Does not wait.
  void Add(int connection);

 private:
  using Phase = HttpExchange::Phase;
  using Exchanges = std::map<const HttpExchange*, std::unique_ptr<HttpExchange>>;

  void Run();
  void TakeNews();
  void Admit(int connection);
  // Waits until a connection is ready, a deadline passes or there is news.
  std::vector<std::pair<HttpExchange*, bool>> Poll();
  void Report(HttpExchange* exchange) const;
  // Handles a step's outcome: reports a refusal, dispatches a complete request, or drops a finished
  // exchange.
  void Settle(HttpExchange* exchange);
  void GiveUpOldAnswers();
  void Wake();

  const Limits limits_;
  const Work work_;
  const int wake_;  // an eventfd; -1 when there was no descriptor for it

  // Used by the polling thread alone, except that an exchange in phase kReady belongs to an
  // answering thread.
  Exchanges exchanges_;
  StreamAdmission admission_;  // silent: without a complete request

  Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<int> arrived_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::pair<HttpExchange*, std::string>> answered_ ABSL_GUARDED_BY(mutex_);

  std::unique_ptr<TaskThreads> threads_;
  std::thread poller_;  // last: it uses all of the above
};

}  // namespace sluice
