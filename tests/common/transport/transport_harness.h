// The suite StreamConformanceTest, instantiated in the test of each transport: its fixture.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tests/common/transport/recording_streams.h"

namespace sluice {

// One transport with a place to run a server.
class TransportHarness {
 public:
  using Unary = std::function<absl::StatusOr<std::string>(const std::string&)>;
  virtual ~TransportHarness() = default;
  virtual Transport* transport() = 0;
  // Returns the address. `unary` answers "/sluice.Pserver/SaveShards".
  virtual std::string Start(StreamHandlerFactory factory, Unary unary) = 0;
  // The server dies with its streams open.
  virtual void Kill() = 0;
  virtual std::string AddressOfNobody() = 0;
};

class StreamConformanceTest
    : public ::testing::TestWithParam<std::function<std::unique_ptr<TransportHarness>()>> {
 protected:
  std::string Start(ScriptedServer* server) { return harness_->Start(server->factory(), nullptr); }
  Transport* transport() { return harness_->transport(); }
  const std::unique_ptr<TransportHarness> harness_ = GetParam()();
};

}  // namespace sluice
