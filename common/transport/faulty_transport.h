// A Transport that breaks its streams at random, for tests of delivery.
//
// After a number of messages that the seed gives, either way, a stream is cut: the message that
// reached the number is lost (a request never sent, or a reply although its request was applied),
// what is queued behind it is lost, both ends see the end. Thread safety: like the transport it
// decorates, which must outlive it; streams must not outlive it.
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
    // No cut after these: for tests that must end. Negative: no bound.
    int max_cuts = -1;
  };

  FaultyTransport(Transport* inner, Options options);
  ~FaultyTransport() override;

  // The cut of the n-th stream to an address depends on seed, address and n only.
  std::unique_ptr<Stream> Connect(const std::string& address, StreamCallbacks callbacks) override;
  // Not disturbed.
  absl::StatusOr<std::string> Call(const std::string& address, const std::string& method,
                                   const std::string& request, absl::Duration timeout) override;
  // Streams cut so far.
  int cuts();

 private:
  class FaultyStream;
  struct Link;

  // True when the message passes; the one that reaches the link's number orders the cut.
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
  std::thread cutter_;  // destroys inner streams, which their own callbacks must not
};

}  // namespace sluice
