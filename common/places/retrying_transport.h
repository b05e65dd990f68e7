// An HttpTransport that sends a request again when the place was busy or the network failed, and
// counts what it does.
//
// Every request that it is given may be repeated: it reads, or asks for credentials.
//
// Thread safety: safe from any thread.
#pragma once

#include <functional>

#include "common/base/clock.h"
#include "common/places/http_transport.h"
#include "common/places/place_use.h"

namespace sluice {

class RetryingTransport : public HttpTransport {
 public:
  struct Options {
    int tries = 8;
    // Pauses are drawn from [0, pause), which doubles up to most_pause: processes that were refused
    // together do not come back together.
    absl::Duration pause = absl::Milliseconds(200), most_pause = absl::Seconds(10);
    std::function<double()> draw;  // from [0, 1)
    Clock* clock = nullptr;
    PlaceUse* use = nullptr;
  };
  // `base` outlives this.
  RetryingTransport(HttpTransport* base, Options options)
      : base_(base), options_(std::move(options)) {}
  // The last answer or error, with the number of tries in its message.
  absl::StatusOr<HttpResponse> Send(const HttpRequest& request) override;

 private:
  HttpTransport* const base_;
  const Options options_;
};

}  // namespace sluice
