// The main function of a worker on a given Env and transport, for test binaries.
//
// The header defines flags; see daemon_flags.h.
#pragma once

#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "common/daemon/daemon_flags.h"
#include "common/daemon/member_flags.h"
#include "common/daemon/stop_signal.h"
#include "model/built_in_models.h"
#include "worker/service/worker_server.h"

DEFINE_int32(rank, -1, "worker slot in the cluster");

namespace sluice {

// Changes the options, whose transport is the worker's own. Returns the transport to use instead,
// which may use the worker's own; null: none.
using PrepareWorker =
    std::function<absl::StatusOr<std::unique_ptr<Transport>>(WorkerServer::Options* options)>;

// Returns the exit code. `env` must live until then.
inline int RunWorker(const std::string& usage, Env* env, int argc, char** argv,
                     const PrepareWorker& prepare = nullptr) {
  const auto fail = [](const absl::Status& status) { return FailToStart(ROLE_WORKER, status); };
  const absl::Status begun = BeginDaemon(usage, &argc, &argv);
  if (!begun.ok()) return fail(begun);
  IdentityFlags flags = ReadDaemonFlags();
  ReadMemberFlags(&flags);
  const auto identity = ResolveIdentity(ROLE_WORKER, flags);
  if (!identity.ok()) return fail(identity.status());

  const auto print = [](const std::string& line) { std::cout << line << std::endl; };
  DataPlane data_plane(*identity, print);
  std::unique_ptr<Transport> transport;
  WorkerServer::Options options;
  options.identity = *identity;
  options.models = &BuiltInModels();
  options.transport = data_plane.transport();
  options.clock = Clock::Real();
  options.env = env;
  options.log = print;
  options.on_end = [](absl::Status status) {
    std::cout << status << std::endl;
    StopSignal::Stop(ExitCodeOf(status));
  };
  if (prepare != nullptr) {
    auto prepared = prepare(&options);
    if (!prepared.ok()) return fail(prepared.status());
    transport = *std::move(prepared);
    if (transport != nullptr) options.transport = transport.get();
  }
  auto server = WorkerServer::Start(std::move(options));
  if (!server.ok()) return fail(server.status());
  const int code = StopSignal::Wait();
  server->reset();
  return code;
}

}  // namespace sluice
