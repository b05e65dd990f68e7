// An HttpTransport that sends a request again when the place was busy or the network failed, and
// counts what it does.
//
// Every request that it is given may be repeated: it reads, asks for credentials, or writes what
// may be written twice (store_writer.h).
//
// Thread safety: safe from any thread.
#pragma once

#include <atomic>
#include <functional>
#include <utility>

#include "common/base/clock.h"
#include "common/places/http_transport.h"
#include "common/places/place_use.h"

namespace sluice {

class RetryingTransport : public HttpTransport {
 public:
  struct Options {
    int tries = 8;
    // Pauses are drawn from [0, pause), which doubles up to most_pause: processes that were refused
    // together do not come back together. What the place asks for (Retry-After) comes on top.
    absl::Duration pause = absl::Milliseconds(200), most_pause = absl::Seconds(10);
    // No third or later try begins later than this after the first, and this for each byte of a
    // range or a body: all tries together are as slow as 20 kB/s at least. A second one is made
    // even if the first has waited for all of that time.
    absl::Duration most_time = absl::Seconds(60), most_time_per_byte = absl::Microseconds(50);
    std::function<double()> draw;  // from [0, 1)
    Clock* clock = nullptr;
    PlaceUse* use = nullptr;
  };
  // `base` outlives this.
  RetryingTransport(HttpTransport* base, Options options)
      : base_(base), options_(std::move(options)) {}
  // The last answer or error, with the number of tries in its message. CANCELLED after Stop.
  absl::StatusOr<HttpResponse> Send(const HttpRequest& request) override;
  // Ends the pauses of all requests, which then fail, as later ones do. A try that is under way is
  // for `base` to end.
  void Stop() { stopped_.store(true, std::memory_order_relaxed); }

 private:
  // False: stopped.
  bool Pause(absl::Duration pause);

  HttpTransport* const base_;
  const Options options_;
  std::atomic<bool> stopped_{false};  // relaxed: nothing else is published with it
};

}  // namespace sluice
