// sluice-pserver: flags to options, then run until told to stop.
#include <glog/logging.h>
#include <signal.h>

#include "common/daemon/daemon_flags.h"
#include "common/daemon/listener_flags.h"
#include "common/daemon/member_flags.h"
#include "common/daemon/process_log.h"
#include "common/daemon/stop_signal.h"
#include "common/places/places_env.h"
#include "common/transport/grpc_transport.h"
#include "server/service/available_memory.h"
#include "server/service/pserver_daemon.h"

DEFINE_int32(rank, -1,
             "rank among the pservers, from 0 (SLUICE_RANK); default: by host name in pservers");
DEFINE_int32(threads, 2,
             "threads of the data plane; as many work on a large sync step when it closes");
DEFINE_int32(drain_s, 30,
             "after SIGTERM, wait at most this many seconds until the shards have moved to other "
             "pservers; 0: end at once, and jobs recover as from a loss");

int main(int argc, char** argv) {
  const auto fail = [](const absl::Status& status) {
    return sluice::FailToStart(sluice::ROLE_PSERVER, status);
  };
  const absl::Status begun = sluice::BeginDaemon(
      "holds shards of tables, applies updates\n"
      "  sluice-pserver --rank=0 --bind=127.0.0.1:0 --scheduler=127.0.0.1:7100",
      &argc, &argv);
  if (!begun.ok()) return fail(begun);
  if (FLAGS_threads < 1) return fail(absl::InvalidArgumentError("--threads must be at least 1"));
  if (FLAGS_drain_s < 0) return fail(absl::InvalidArgumentError("--drain_s must not be negative"));
  sluice::PrepareDataPlane();
  sluice::IdentityFlags flags = sluice::ReadDaemonFlags();
  sluice::ReadMemberFlags(&flags);
  sluice::ReadListenerFlags(&flags);
  const auto identity = sluice::ResolveIdentity(sluice::ROLE_PSERVER, flags);
  if (!identity.ok()) return fail(identity.status());
  const absl::Status log = sluice::OpenDaemonLog(*identity, argv[0]);
  if (!log.ok()) return fail(log);
  const auto audit = sluice::OpenAuditLog(*identity, sluice::Clock::Real(), sluice::Env::Real());
  if (!audit.ok()) return fail(audit.status());

  const auto places = sluice::PlacesEnv::Real(8, "a pserver reads no data");
  sluice::PserverDaemon::Options options;
  options.identity = *identity;
  options.threads = FLAGS_threads;
  options.clock = sluice::Clock::Real();
  options.env = places.get();
  options.places = places->use();
  options.audit = audit->get();
  options.available_memory = [] { return sluice::AvailableMemory(); };
  options.log = [](const std::string& line) { LOG(INFO) << line; };
  options.on_end = [](absl::Status status) {
    if (status.ok()) sluice::LogAndTell("the scheduler told this pserver to stop");
    LOG_IF(ERROR, !status.ok()) << status.message();
    sluice::StopSignal::Stop(sluice::ExitCodeOf(status));
  };
  auto daemon = sluice::PserverDaemon::Start(std::move(options));
  if (!daemon.ok()) {
    LOG(ERROR) << daemon.status().message();
    return sluice::ExitCodeOf(daemon.status());
  }
  const int code = sluice::StopSignal::Wait();
  // Ctrl-C in a terminal reaches all processes of a cluster, and so does the end of their launcher:
  // nobody would be left to move shards to.
  if (code == 128 + SIGTERM && FLAGS_drain_s > 0 && !sluice::StopSignal::ParentHasEnded()) {
    sluice::StopSignal::AllowMore(FLAGS_drain_s);
    (*daemon)->Drain(absl::Seconds(FLAGS_drain_s));
  }
  daemon->reset();
  sluice::TellEnd(code);
  return code;
}
