// The main function of a pserver on a given Env, for test binaries.
//
// The header defines flags; see daemon_flags.h.
#pragma once

#include <iostream>
#include <string>
#include <utility>

#include "common/daemon/daemon_flags.h"
#include "common/daemon/listener_flags.h"
#include "common/daemon/member_flags.h"
#include "server/service/available_memory.h"
#include "server/service/pserver_daemon.h"

DEFINE_int32(rank, -1, "rank among the pservers");

namespace sluice {

// Returns the exit code. `env` must live until then.
inline int RunPserver(const std::string& usage, Env* env, int argc, char** argv) {
  const auto fail = [](const absl::Status& status) { return FailToStart(ROLE_PSERVER, status); };
  const absl::Status begun = BeginDaemon(usage, &argc, &argv);
  if (!begun.ok()) return fail(begun);
  IdentityFlags flags = ReadDaemonFlags();
  ReadMemberFlags(&flags);
  ReadListenerFlags(&flags);
  const auto identity = ResolveIdentity(ROLE_PSERVER, flags);
  if (!identity.ok()) return fail(identity.status());

  PserverDaemon::Options options;
  options.identity = *identity;
  options.clock = Clock::Real();
  options.env = env;
  options.available_memory = [] { return AvailableMemory(); };
  options.log = [](const std::string& line) { std::cout << line << std::endl; };
  options.on_end = [](absl::Status status) {
    std::cout << status << std::endl;
    StopSignal::Stop(ExitCodeOf(status));
  };
  auto daemon = PserverDaemon::Start(std::move(options));
  if (!daemon.ok()) return fail(daemon.status());
  const int code = StopSignal::Wait();
  daemon->reset();
  return code;
}

}  // namespace sluice
