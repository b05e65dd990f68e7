// failpoint_worker: sluice-worker that kills itself before or after a change of files of
// checkpoints and models.
#include <iostream>
#include <string>
#include <utility>

#include "common/daemon/daemon_flags.h"
#include "common/daemon/member_flags.h"
#include "common/daemon/stop_signal.h"
#include "tests/system/failpoint.h"
#include "worker/data_plane.h"
#include "worker/worker_server.h"

DEFINE_int32(rank, -1, "worker slot in the cluster");

int main(int argc, char** argv) {
  sluice::HookedEnv env;
  sluice::SetFailpoint(&env);
  const auto fail = [](const absl::Status& status) {
    return sluice::FailToStart(sluice::ROLE_WORKER, status);
  };
  const absl::Status begun = sluice::BeginDaemon("a worker with a failpoint", &argc, &argv);
  if (!begun.ok()) return fail(begun);
  sluice::IdentityFlags flags = sluice::ReadDaemonFlags();
  sluice::ReadMemberFlags(&flags);
  const auto identity = sluice::ResolveIdentity(sluice::ROLE_WORKER, flags);
  if (!identity.ok()) return fail(identity.status());

  sluice::DataPlane data_plane(*identity,
                               [](const std::string& line) { std::cout << line << std::endl; });
  sluice::WorkerServer::Options options;
  options.identity = *identity;
  options.transport = data_plane.transport();
  options.clock = sluice::Clock::Real();
  options.env = &env;
  options.log = [](const std::string& line) { std::cout << line << std::endl; };
  options.on_end = [](absl::Status status) {
    std::cout << status << std::endl;
    sluice::StopSignal::Stop(sluice::ExitCodeOf(status));
  };
  auto server = sluice::WorkerServer::Start(std::move(options));
  if (!server.ok()) return fail(server.status());
  const int code = sluice::StopSignal::Wait();
  server->reset();
  return code;
}
