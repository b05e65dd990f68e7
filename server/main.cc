// sluice-pserver: flags to options, then run until told to stop.
#include <gflags/gflags.h>
#include <glog/logging.h>

#include <iostream>

#include "common/daemon/identity.h"
#include "common/transport/grpc_transport.h"
#include "server/pserver_server.h"

DEFINE_string(cluster, "", "ClusterConfig file; what the other flags do not say comes from it");
DEFINE_int32(rank, -1, "rank among the pservers, from 0 (SLUICE_RANK)");
DEFINE_string(bind, "", "host:port to listen on, port 0: a free one (SLUICE_BIND)");
DEFINE_string(advertise, "", "host:port that workers use (SLUICE_ADVERTISE); default: bind");
DEFINE_string(scheduler, "", "host:port of the scheduler (SLUICE_SCHEDULER)");
DECLARE_string(log_dir);  // glog's
DEFINE_string(admin_bind, "",
              "host:port of the admin HTTP server; default 127.0.0.1 and a free port");
DEFINE_bool(insecure, false, "allow addresses other than loopback without TLS");
DEFINE_int32(threads, 2, "threads of the data plane");
DEFINE_bool(job_log_folders, true, "each job also logs into a folder of its own under --log_dir");
DEFINE_bool(die_with_parent, false, "stop when the parent process ends");

namespace {

int Fail(const absl::Status& status) {
  std::cerr << "sluice-pserver: " << status.message() << std::endl;
  return sluice::ExitCodeOf(status);
}

}  // namespace

int main(int argc, char** argv) {
  gflags::SetUsageMessage(
      "holds shards of tables, applies updates\n  sluice-pserver --rank=0 "
      "--bind=127.0.0.1:0 --scheduler=127.0.0.1:9400");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  if (argc > 1) return Fail(absl::InvalidArgumentError(std::string("unknown argument ") + argv[1]));
  if (FLAGS_threads < 1) return Fail(absl::InvalidArgumentError("--threads must be at least 1"));
  sluice::KeepFreedMemory();
  sluice::IdentityFlags flags;
  flags.cluster_file = FLAGS_cluster;
  flags.rank = FLAGS_rank;
  flags.bind = FLAGS_bind;
  flags.advertise = FLAGS_advertise;
  flags.scheduler = FLAGS_scheduler;
  flags.log_dir = FLAGS_log_dir;
  flags.admin_bind = FLAGS_admin_bind;
  flags.insecure = FLAGS_insecure;
  const auto identity = sluice::ResolveIdentity(sluice::ROLE_PSERVER, flags);
  if (!identity.ok()) return Fail(identity.status());
  sluice::StopSignal::Install(FLAGS_die_with_parent);
  const absl::Status log = sluice::OpenLog(*identity, argv[0]);
  if (!log.ok()) return Fail(log);

  sluice::PserverServer::Options options;
  options.identity = *identity;
  options.threads = FLAGS_threads;
  options.job_log_folders = FLAGS_job_log_folders;
  options.log = [](const std::string& line) { LOG(INFO) << line; };
  options.on_end = [](absl::Status status) {
    LOG_IF(INFO, status.ok()) << "the scheduler says stop";
    LOG_IF(ERROR, !status.ok()) << status.message();
    sluice::StopSignal::Stop(sluice::ExitCodeOf(status));
  };
  auto server = sluice::PserverServer::Start(std::move(options));
  if (!server.ok()) {
    LOG(ERROR) << server.status().message();
    return sluice::ExitCodeOf(server.status());
  }
  const int code = sluice::StopSignal::Wait();
  server->reset();
  LOG(INFO) << "stopped with exit code " << code;
  return code;
}
