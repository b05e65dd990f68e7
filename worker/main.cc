// sluice-worker: flags to options, then run until told to stop.
#include <gflags/gflags.h>
#include <glog/logging.h>

#include <iostream>

#include "common/daemon/identity.h"
#include "common/transport/grpc_transport.h"
#include "worker/worker_server.h"

DEFINE_string(cluster, "", "ClusterConfig file; what the other flags do not say comes from it");
DEFINE_int32(rank, -1, "worker slot in the cluster, from 0 (SLUICE_RANK)");
DEFINE_string(scheduler, "", "host:port of the scheduler (SLUICE_SCHEDULER)");
DEFINE_string(log_dir_path, "", "folder of workerlog.N and endpoints.log (SLUICE_LOG_DIR); default log");
DEFINE_string(admin_bind, "", "host:port of the admin HTTP server; default 127.0.0.1 and a free port");
DEFINE_bool(insecure, false, "allow addresses other than loopback without TLS");
DEFINE_string(device, "cpu", "where to compute: cpu, or auto");
DEFINE_int32(threads, 1, "compute threads, unless the job sets train.threads");
DEFINE_bool(die_with_parent, false, "stop when the parent process ends");

int main(int argc, char** argv) {
  return 0;
}
