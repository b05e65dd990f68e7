// sluice-scheduler: flags to options, then run until the cluster is shut down.
#include <glog/logging.h>
#include <malloc.h>

#include "common/config/job_config.h"
#include "common/daemon/control_plane.h"
#include "common/daemon/daemon_flags.h"
#include "common/daemon/listener_flags.h"
#include "common/daemon/process_log.h"
#include "common/daemon/stop_signal.h"
#include "common/places/places_env.h"
#include "scheduler/service/scheduler_server.h"

DEFINE_int32(
    server_num, -1,
    "number of pservers; 0: the workers keep all tables (sync jobs without sparse tables); "
    "-1: as many as the cluster file lists, and without a file 1");
DEFINE_uint32(worker_num, 0, "number of worker slots; 0: worker_num of the cluster file");
DEFINE_uint32(lease_ms, 0, "a member that is silent for this long is dead; 0: limits.lease_ms");
DEFINE_uint32(heartbeat_ms, 0, "time between two reports of a member; 0: limits.heartbeat_ms");
DEFINE_bool(standby, false,
            "wait while another scheduler leads, and take over when it dies or leaves; needs "
            "state_store: \"etcd:...\" (SLUICE_STANDBY)");

DEFINE_string(etcd_ca, "",
              "PEM file with the CA that has signed etcd's certificates: TLS to the state_store "
              "etcd:... (SLUICE_ETCD_CA)");
DEFINE_string(etcd_cert, "", "PEM file with a certificate that etcd trusts (SLUICE_ETCD_CERT)");
DEFINE_string(etcd_key, "", "PEM file with the private key of --etcd_cert (SLUICE_ETCD_KEY)");

DEFINE_bool(
    etcd_compact, false,
    "drop what etcd has kept of values that were replaced more than 10 minutes ago; only for "
    "an etcd that serves Sluice alone");

static constexpr int kSuperseded = 5;  // exit code

// Makes malloc return large blocks to the kernel when they are freed. The sums of a running
// evaluation take 16 MiB and reports of them several MiB. By default each of the many threads'
// arenas would keep such blocks.
static void ReturnFreedMemory() {
  mallopt(M_MMAP_THRESHOLD, 256 << 10);
  mallopt(M_TRIM_THRESHOLD, 4 << 20);
  mallopt(M_ARENA_MAX, 2);
}

int main(int argc, char** argv) {
  ReturnFreedMemory();
  const auto fail = [](const absl::Status& status) {
    return sluice::FailToStart(sluice::ROLE_SCHEDULER, status);
  };
  const absl::Status begun = sluice::BeginDaemon(
      "coordinates a cluster: members, jobs and data tasks\n"
      "  sluice-scheduler --cluster=configs/two_hosts_cluster.textproto\n"
      "  sluice-scheduler --bind=127.0.0.1:7100 --server_num=2 --worker_num=2\n"
      "  sluice-scheduler --cluster=C --standby    (on each of two hosts)",
      &argc, &argv);
  if (!begun.ok()) return fail(begun);
  sluice::IdentityFlags flags = sluice::ReadDaemonFlags();
  sluice::ReadListenerFlags(&flags);
  flags.standby = FLAGS_standby;
  flags.etcd_compact = FLAGS_etcd_compact;
  flags.etcd = {FLAGS_etcd_cert, FLAGS_etcd_key, FLAGS_etcd_ca};
  auto identity = sluice::ResolveIdentity(sluice::ROLE_SCHEDULER, flags);
  if (!identity.ok()) return fail(identity.status());
  sluice::LimitsConfig* limits = identity->cluster.mutable_limits();
  if (FLAGS_lease_ms > 0) limits->set_lease_ms(FLAGS_lease_ms);
  if (FLAGS_heartbeat_ms > 0) limits->set_heartbeat_ms(FLAGS_heartbeat_ms);
  const absl::Status valid = sluice::ValidateClusterConfig(identity->cluster);
  if (!valid.ok()) return fail(valid);
  if (const absl::Status log = sluice::OpenDaemonLog(*identity, argv[0]); !log.ok())
    return fail(log);
  const auto audit = sluice::OpenAuditLog(*identity, sluice::Clock::Real(), sluice::Env::Real());
  if (!audit.ok()) return fail(audit.status());

  // Web servers are never asked: the scheduler reads no data.
  const auto places = sluice::PlacesEnv::Real(8, "the scheduler reads no data");
  sluice::SchedulerServer::Options options;
  options.identity = *identity;
  if (FLAGS_server_num >= 0) options.server_num = static_cast<uint32_t>(FLAGS_server_num);
  options.worker_num = FLAGS_worker_num;
  options.clock = sluice::Clock::Real();
  options.env = places.get();
  options.places = places->use();
  options.audit = audit->get();
  options.log = [](const std::string& line) { LOG(INFO) << line; };
  options.on_end = [] { sluice::StopSignal::Stop(0); };
  // Nobody is to start this process again as long as the newer scheduler lives, unless it stands by
  // then. One that only was cut off from its store may be started again.
  options.on_superseded = [standby = identity->standby](const absl::Status& why) {
    const bool final = absl::IsAborted(why) && !standby;
    sluice::StopSignal::Stop(final ? kSuperseded : 1);
  };
  options.pause = [](absl::Duration time) {
    return !sluice::StopSignal::IsWanted(static_cast<int>(absl::ToInt64Milliseconds(time)));
  };
  auto server = sluice::SchedulerServer::Start(std::move(options));
  if (absl::IsCancelled(server.status())) return sluice::StopSignal::Wait();
  if (!server.ok()) {
    LOG(ERROR) << server.status().message();
    return sluice::ExitCodeOf(server.status());
  }
  LOG(INFO) << sluice::kReadyMark << "serves";
  const int code = sluice::StopSignal::Wait();
  server->reset();
  sluice::TellEnd(code);
  return code;
}
