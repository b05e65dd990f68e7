// sluice-worker: flags to options, then run until told to stop.
#include <gflags/gflags.h>
#include <glog/logging.h>

#include <algorithm>
#include <cstdio>
#include <thread>

#include "common/daemon/identity.h"
#include "common/transport/grpc_transport.h"
#include "worker/worker_server.h"

DECLARE_string(log_dir);  // glog's own
DEFINE_string(cluster, "", "ClusterConfig file; what flags and variables do not say comes from it (SLUICE_CLUSTER)");
DEFINE_int32(rank, -1, "worker slot in the cluster, from 0 (SLUICE_RANK)");
DEFINE_string(scheduler, "", "host:port of the scheduler (SLUICE_SCHEDULER)");
DEFINE_string(admin_bind, "", "host:port of the admin HTTP server; default 127.0.0.1 and a free port");
DEFINE_bool(insecure, false, "allow addresses other than loopback without TLS");
DEFINE_string(device, "cpu", "where to compute: cpu or auto");
DEFINE_int32(threads, 0, "compute threads, unless the job sets train.threads; 0: cores / workers on this host");
DEFINE_bool(job_log_folders, true, "each job also logs into a folder of its own under --log_dir");
DEFINE_bool(die_with_parent, false, "stop when the parent process ends");

namespace {

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "sluice-worker: %s\n", std::string(status.message()).c_str());
  return sluice::ExitCodeOf(status);
}

// Cores over the workers that share this host: those with the same entry of worker_hosts; all, when the cluster
// file does not say where workers run.
int DefaultThreads(const sluice::Identity& identity) {
  const auto& hosts = identity.cluster.worker_hosts();
  int workers = std::max<int>(1, identity.cluster.worker_num());
  if (static_cast<int>(identity.rank) < hosts.size()) {
    workers = std::count(hosts.begin(), hosts.end(), hosts[identity.rank]);
  }
  return std::max<int>(1, std::thread::hardware_concurrency() / workers);
}

}  // namespace

int main(int argc, char** argv) {
  gflags::SetUsageMessage("runs the jobs that a scheduler assigns to it\n"
      "  sluice-worker --cluster=configs/two_hosts_cluster.textproto --rank=0");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  sluice::KeepFreedMemory();
  sluice::StopSignal::Install(FLAGS_die_with_parent);
  if (FLAGS_device != "cpu" && FLAGS_device != "auto") {
    return Fail(absl::InvalidArgumentError("--device=" + FLAGS_device +
                                           ": this build computes on the CPU only; use --device=cpu"));
  }
  if (argc > 1) return Fail(absl::InvalidArgumentError(std::string("unknown argument ") + argv[1]));
  if (FLAGS_threads < 0) return Fail(absl::InvalidArgumentError("--threads must be 0 or more"));
  sluice::IdentityFlags flags;
  flags.cluster_file = FLAGS_cluster;
  flags.rank = FLAGS_rank;
  flags.scheduler = FLAGS_scheduler;
  flags.log_dir = FLAGS_log_dir;
  flags.admin_bind = FLAGS_admin_bind;
  flags.insecure = FLAGS_insecure;
  auto identity = sluice::ResolveIdentity(sluice::ROLE_WORKER, flags);
  if (!identity.ok()) return Fail(identity.status());
  if (const absl::Status log = sluice::OpenLog(*identity, argv[0]); !log.ok()) return Fail(log);

  sluice::GrpcTransport::Options data_plane;
  data_plane.max_message_bytes = size_t{identity->cluster.limits().max_message_mib()} << 20;
  sluice::GrpcTransport transport(data_plane);
  sluice::WorkerServer::Options options;
  options.identity = *identity;
  options.threads = FLAGS_threads > 0 ? FLAGS_threads : DefaultThreads(*identity);
  options.job_log_folders = FLAGS_job_log_folders;
  options.transport = &transport;
  options.log = [](const std::string& line) { LOG(INFO) << line; };
  options.on_end = [](absl::Status status) {
    if (!status.ok()) LOG(ERROR) << status.message();
    sluice::StopSignal::Stop(sluice::ExitCodeOf(status));
  };
  auto server = sluice::WorkerServer::Start(std::move(options));
  if (!server.ok()) {
    LOG(ERROR) << server.status().message();
    return Fail(server.status());
  }
  const int code = sluice::StopSignal::Wait();
  server->reset();
  return code;
}
