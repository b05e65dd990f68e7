// A transport and the servers at its addresses, for tests that run over every transport.
//
// Thread safety: safe from any thread, but Bind and Unbind belong to one thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/common/transport/in_process_transport.h"

namespace sluice {

class TestNetwork {
 public:
  using Call = std::function<absl::StatusOr<std::string>(const std::string& request)>;
  using Calls = std::map<std::string, Call>;  // by method

  virtual ~TestNetwork() = default;

  // The transport of the clients. Its addresses are the names given to Bind.
  virtual Transport* transport() = 0;
  // Serves the streams and calls to `name` from now on.
  // REQUIRES: `name` is not bound.
  virtual void Bind(const std::string& name, StreamHandlerFactory factory, Calls calls = {}) = 0;
  // Ends the server at `name` and its streams. Returns when every handler is destroyed. Names that
  // are not bound are ignored.
  virtual void Unbind(const std::string& name) = 0;
  // Where other processes reach the server at `name`; "" when they cannot.
  virtual std::string AddressOf(const std::string& name) const = 0;

  // While refused, new streams cannot share memory, as with a pserver in another container.
  virtual void RefuseSharedMemory(bool /*refused*/) {}
  // The streams through shared memory since the beginning, and those that used gRPC instead.
  virtual int shared_memory_streams() const { return 0; }
  virtual int fallback_streams() const { return 0; }
};

class InProcessNetwork : public TestNetwork {
 public:
  Transport* transport() override { return &transport_; }
  void Bind(const std::string& name, StreamHandlerFactory factory, Calls calls = {}) override {
    transport_.Bind(name, std::move(factory));
    for (auto& [method, call] : calls) transport_.RegisterUnary(name, method, std::move(call));
  }
  void Unbind(const std::string& name) override { transport_.Unbind(name); }
  std::string AddressOf(const std::string& /*name*/) const override { return ""; }

 private:
  InProcessTransport transport_;
};

// A way to make a network, for tests with it as their parameter (all_networks.h).
struct NetworkKind {
  const char* name;
  std::unique_ptr<TestNetwork> (*make)();
};

}  // namespace sluice
