// The fixture of StreamConformanceTest, the suite that the test of each transport instantiates.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tests/common/transport/recording_streams.h"

namespace sluice {

// A transport under test, and how to run a server for it.
class TransportHarness {
 public:
  using Unary = std::function<absl::StatusOr<std::string>(const std::string&)>;
  virtual ~TransportHarness() = default;
  virtual Transport* transport() = 0;
  // Starts a server and returns its address. `unary` answers "/sluice.Pserver/SaveShards".
  virtual std::string Start(StreamHandlerFactory factory, Unary unary) = 0;
  // Ends the server while its streams are open.
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
