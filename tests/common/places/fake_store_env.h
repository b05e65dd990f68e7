// The machine's files, and a store in memory (FakeStore) at s3://, as one Env.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/places/places_env.h"
#include "tests/common/base/fake_clock.h"
#include "tests/common/places/fake_store.h"

namespace sluice {

class FakeStoreEnv {
 public:
  // `base` has the machine's files, and outlives this.
  explicit FakeStoreEnv(Env* base = Env::Real()) {
    transport.answer = [this](const HttpRequest& request) { return store(request); };
    PlacesEnv::Options options;
    options.base = base;
    options.clock = &clock_;
    options.transport = &transport;
    options.variable = [](const std::string& name) -> std::optional<std::string> {
      if (name == "AWS_SKIP_SIGNATURE") return "true";
      if (name == "AWS_ENDPOINT_URL") return "http://h:1";
      return std::nullopt;
    };
    env_ = std::make_unique<PlacesEnv>(std::move(options));
  }
  Env* get() { return env_.get(); }
  void Pass(absl::Duration time) { clock_.Advance(time); }

  FakeStore store;
  FakeTransport transport;

 private:
  FakeClock clock_;
  std::unique_ptr<PlacesEnv> env_;
};

}  // namespace sluice
