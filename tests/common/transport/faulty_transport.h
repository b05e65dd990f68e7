// A Transport that breaks its streams at random, for tests of delivery.
//
// The seed decides after how many messages, in either direction, a stream is cut. The message that
// reaches the number is lost: a request is never sent, or a reply is lost although its request was
// applied. Messages queued after it are lost too, and both ends see the stream end.
//
// Lifetime: the inner transport must outlive this one, and this one its streams.
//
// Thread safety: safe from any thread.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "common/base/mutex.h"
#include "common/transport/transport.h"

namespace sluice {

class FaultyTransport : public Transport {
 public:
  struct Options {
    uint64_t seed = 1;
    // A stream carries up to 2 * mean_messages - 2 messages, replies included, before it is cut.
    int mean_messages = 20;
    // The most streams to cut, for tests that must end. Negative: no bound.
    int max_cuts = -1;
  };

  FaultyTransport(Transport* inner, Options options);
  ~FaultyTransport() override;

  // The point of the cut of the n-th stream to an address depends only on seed, address and n.
  std::unique_ptr<Stream> Connect(const PserverAddress& to, StreamCallbacks callbacks) override;
  // Passes the call on unchanged.
  absl::StatusOr<std::string> Call(const PserverAddress& to, const std::string& method,
                                   const std::string& request, absl::Duration timeout) override;
  // The number of streams cut so far.
  int cuts();

 private:
  class FaultyStream;
  struct Link;

  // Returns true when a message passes. The message that reaches the link's number orders the cut.
  bool Pass(const std::shared_ptr<Link>& link);
  void CutLoop();
  static void Cut(Link* link);

  Transport* const inner_;
  const Options options_;
  Mutex mutex_;
  CondVar changed_;
  std::map<std::string, uint64_t> connects_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::shared_ptr<Link>> to_cut_ ABSL_GUARDED_BY(mutex_);
  int cuts_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread cutter_;  // destroys inner streams, because their own callbacks must not
};

}  // namespace sluice
