// failpoint_scheduler: sluice-scheduler that kills itself before or after a change of files.
#include <iostream>
#include <string>
#include <utility>

#include "common/daemon/daemon_flags.h"
#include "common/daemon/listener_flags.h"
#include "scheduler/scheduler_server.h"
#include "tests/system/failpoint.h"

DEFINE_uint32(server_num, 0, "number of pservers");
DEFINE_uint32(worker_num, 0, "number of worker slots");

int main(int argc, char** argv) {
  sluice::HookedEnv env;
  sluice::SetFailpoint(&env);
  const auto fail = [](const absl::Status& status) {
    return sluice::FailToStart(sluice::ROLE_SCHEDULER, status);
  };
  const absl::Status begun = sluice::BeginDaemon("a scheduler with a failpoint", &argc, &argv);
  if (!begun.ok()) return fail(begun);
  sluice::IdentityFlags flags = sluice::ReadDaemonFlags();
  sluice::ReadListenerFlags(&flags);
  const auto identity = sluice::ResolveIdentity(sluice::ROLE_SCHEDULER, flags);
  if (!identity.ok()) return fail(identity.status());

  sluice::SchedulerServer::Options options;
  options.identity = *identity;
  options.server_num = FLAGS_server_num;
  options.worker_num = FLAGS_worker_num;
  options.env = &env;
  options.log = [](const std::string& line) { std::cout << line << std::endl; };
  options.on_end = [] { sluice::StopSignal::Stop(0); };
  auto server = sluice::SchedulerServer::Start(std::move(options));
  if (!server.ok()) return fail(server.status());
  const int code = sluice::StopSignal::Wait();
  server->reset();
  return code;
}
