// sluice-scheduler: flags to options, then run until the cluster is shut down.
#include <gflags/gflags.h>
#include <glog/logging.h>

#include <cstdio>

#include "common/config/job_config.h"
#include "common/daemon/identity.h"
#include "scheduler/scheduler_server.h"

DECLARE_string(log_dir);  // glog's own
DEFINE_string(
    cluster, "",
    "ClusterConfig file; what flags and variables do not say comes from it (SLUICE_CLUSTER)");
DEFINE_string(
    bind, "",
    "host:port to listen on, port 0: a free one (SLUICE_BIND); default: the cluster file's");
DEFINE_string(advertise, "", "host:port that members use (SLUICE_ADVERTISE); default: bind");
DEFINE_string(admin_bind, "",
              "host:port of the admin HTTP server; default 127.0.0.1 and a free port");
DEFINE_bool(insecure, false, "allow addresses other than loopback without TLS");
DEFINE_uint32(server_num, 0, "pservers of the cluster; 0: as the cluster file lists");
DEFINE_uint32(worker_num, 0, "worker slots of the cluster; 0: as the cluster file says");
DEFINE_uint32(lease_ms, 0, "a member that is silent for so long is dead; 0: limits.lease_ms");
DEFINE_uint32(heartbeat_ms, 0, "pause between two reports of a member; 0: limits.heartbeat_ms");
DEFINE_bool(job_log_folders, true, "each job also logs into a folder of its own under --log_dir");
DEFINE_bool(die_with_parent, false, "stop when the parent process ends");

namespace {

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "sluice-scheduler: %s\n", std::string(status.message()).c_str());
  return sluice::ExitCodeOf(status);
}

}  // namespace

int main(int argc, char** argv) {
  gflags::SetUsageMessage(
      "leads a cluster: members, jobs, data tasks\n"
      "  sluice-scheduler --cluster=configs/two_hosts_cluster.textproto\n"
      "  sluice-scheduler --bind=127.0.0.1:7000 --server_num=2 --worker_num=2");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  sluice::StopSignal::Install(FLAGS_die_with_parent);
  if (argc > 1) return Fail(absl::InvalidArgumentError(std::string("unknown argument ") + argv[1]));
  sluice::IdentityFlags flags;
  flags.cluster_file = FLAGS_cluster;
  flags.bind = FLAGS_bind;
  flags.advertise = FLAGS_advertise;
  flags.log_dir = FLAGS_log_dir;
  flags.admin_bind = FLAGS_admin_bind;
  flags.insecure = FLAGS_insecure;
  auto identity = sluice::ResolveIdentity(sluice::ROLE_SCHEDULER, flags);
  if (!identity.ok()) return Fail(identity.status());
  sluice::LimitsConfig* limits = identity->cluster.mutable_limits();
  if (FLAGS_lease_ms > 0) limits->set_lease_ms(FLAGS_lease_ms);
  if (FLAGS_heartbeat_ms > 0) limits->set_heartbeat_ms(FLAGS_heartbeat_ms);
  const absl::Status valid = sluice::ValidateClusterConfig(identity->cluster);
  if (!valid.ok()) return Fail(valid);
  if (const absl::Status log = sluice::OpenLog(*identity, argv[0]); !log.ok()) return Fail(log);

  sluice::SchedulerServer::Options options;
  options.identity = *identity;
  options.server_num = FLAGS_server_num;
  options.worker_num = FLAGS_worker_num;
  options.job_log_folders = FLAGS_job_log_folders;
  options.log = [](const std::string& line) { LOG(INFO) << line; };
  options.on_end = [] { sluice::StopSignal::Stop(0); };
  auto server = sluice::SchedulerServer::Start(std::move(options));
  if (!server.ok()) {
    LOG(ERROR) << server.status().message();
    return Fail(server.status());
  }
  const int code = sluice::StopSignal::Wait();
  server->reset();
  return code;
}
