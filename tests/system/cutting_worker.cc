// cutting_worker: sluice-worker whose streams break all the time, over whatever transport.
//
// CUT_EVERY: messages on a stream, on average, until it is cut. At its end it prints how many it
// has cut.
#include <cstdlib>
#include <iostream>
#include <string>
#include <utility>

#include "common/daemon/daemon_flags.h"
#include "common/daemon/member_flags.h"
#include "common/daemon/stop_signal.h"
#include "tests/common/transport/faulty_transport.h"
#include "worker/data_plane.h"
#include "worker/worker_server.h"

DEFINE_int32(rank, -1, "worker slot in the cluster");

int main(int argc, char** argv) {
  const auto fail = [](const absl::Status& status) {
    return sluice::FailToStart(sluice::ROLE_WORKER, status);
  };
  const absl::Status begun = sluice::BeginDaemon("a worker that cuts its streams", &argc, &argv);
  if (!begun.ok()) return fail(begun);
  sluice::IdentityFlags flags = sluice::ReadDaemonFlags();
  sluice::ReadMemberFlags(&flags);
  const auto identity = sluice::ResolveIdentity(sluice::ROLE_WORKER, flags);
  if (!identity.ok()) return fail(identity.status());
  const char* const every = std::getenv("CUT_EVERY");
  if (every == nullptr) return fail(absl::InvalidArgumentError("CUT_EVERY is not set"));

  const auto print = [](const std::string& line) { std::cout << line << std::endl; };
  sluice::DataPlane data_plane(*identity, print);
  sluice::FaultyTransport::Options cuts;
  cuts.seed = identity->rank + 1;
  cuts.mean_messages = std::atoi(every);
  sluice::FaultyTransport transport(data_plane.transport(), cuts);
  sluice::WorkerServer::Options options;
  options.identity = *identity;
  options.threads = 1;
  options.transport = &transport;
  options.clock = sluice::Clock::Real();
  options.env = sluice::Env::Real();
  options.log = print;
  options.on_end = [](absl::Status status) {
    std::cout << status << std::endl;
    sluice::StopSignal::Stop(sluice::ExitCodeOf(status));
  };
  auto server = sluice::WorkerServer::Start(std::move(options));
  if (!server.ok()) return fail(server.status());
  const int code = sluice::StopSignal::Wait();
  server->reset();
  std::cout << "cut " << transport.cuts() << " streams" << std::endl;
  return code;
}
