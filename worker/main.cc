// sluice-worker: turns flags into options and runs until told to stop.
#include <glog/logging.h>

#include <algorithm>
#include <thread>

#include "common/daemon/daemon_flags.h"
#include "common/daemon/member_flags.h"
#include "common/daemon/process_limits.h"
#include "common/daemon/process_log.h"
#include "common/daemon/stop_signal.h"
#include "common/places/places_env.h"
#include "model/built_in_models.h"
#include "worker/service/worker_device.h"
#include "worker/service/worker_server.h"

DEFINE_string(device, "",
              "where to compute: cpu, cuda (the first GPU that no other worker of this host has), "
              "cuda:N, or auto, which is cuda where possible and cpu otherwise (SLUICE_DEVICE). "
              "Default: worker_devices of the cluster file, or cpu. CUDA_VISIBLE_DEVICES applies. "
              "CUDA, FP16 and NCCL have not run on a GPU yet");
DEFINE_int32(rank, -1,
             "worker slot in the cluster, from 0 (SLUICE_RANK). Default: found by host name in "
             "worker_hosts");
DEFINE_int32(threads, 0,
             "compute threads, unless the job sets train.threads. 0: the cores divided by the "
             "workers that worker_hosts puts on this host (without worker_hosts: by worker_num)");

namespace {

// The cores divided by the workers that share this host. Those are the workers with the same entry
// in worker_hosts, or all of them when the cluster file does not say where workers run.
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
  sluice::UsePassiveThreads(argv);
  const auto fail = [](const absl::Status& status) {
    return sluice::FailToStart(sluice::ROLE_WORKER, status);
  };
  const absl::Status begun = sluice::BeginDaemon(
      "runs the jobs that a scheduler assigns to it\n"
      "  sluice-worker --cluster=configs/two_hosts_cluster.textproto --rank=0\n"
      "  sluice-worker --cluster=configs/two_hosts_cluster.textproto --rank=0 --device=cuda",
      &argc, &argv);
  if (!begun.ok()) return fail(begun);
  sluice::PrepareDataPlane();
  if (FLAGS_threads < 0) return fail(absl::InvalidArgumentError("--threads must be 0 or more"));
  sluice::IdentityFlags flags = sluice::ReadDaemonFlags();
  sluice::ReadMemberFlags(&flags);
  flags.device = FLAGS_device;
  auto identity = sluice::ResolveIdentity(sluice::ROLE_WORKER, flags);
  if (!identity.ok()) return fail(identity.status());
  // The worker takes its device before it joins the cluster: without it, it must get no job.
  const auto device = sluice::TakeDevice(identity->device);
  if (!device.ok()) return fail(device.status());
  if (const absl::Status log = sluice::OpenDaemonLog(*identity, argv[0]); !log.ok())
    return fail(log);
  const auto audit = sluice::OpenAuditLog(*identity, sluice::Clock::Real(), sluice::Env::Real());
  if (!audit.ok()) return fail(audit.status());

  const auto places = sluice::PlacesEnv::Real(8, sluice::WebDataProblem(*identity));
  sluice::DataPlane data_plane(*identity, [](const std::string& line) { LOG(INFO) << line; });
  sluice::WorkerServer::Options options;
  options.identity = *identity;
  options.threads = FLAGS_threads > 0 ? FLAGS_threads : DefaultThreads(*identity);
  options.device = device->device;
  options.models = &sluice::BuiltInModels();
  options.transport = data_plane.transport();
  options.clock = sluice::Clock::Real();
  options.env = places.get();
  options.places = places->use();
  options.stop_reads = [&places] { places->Stop(); };
  options.audit = audit->get();
  options.log = [](const std::string& line) { LOG(INFO) << line; };
  options.on_end = [](absl::Status status) {
    if (status.ok()) sluice::LogAndTell("the scheduler told this worker to stop");
    if (!status.ok()) LOG(ERROR) << status.message();
    sluice::StopSignal::Stop(sluice::ExitCodeOf(status));
  };
  if (device->device.kind == sluice::ComputeDevice::kCuda) {
    sluice::LogAndTell(device->line);
  } else {
    options.log(device->line);
  }
  auto server = sluice::WorkerServer::Start(std::move(options));
  if (!server.ok()) {
    LOG(ERROR) << server.status().message();
    return sluice::ExitCodeOf(server.status());
  }
  const int code = sluice::StopSignal::Wait();
  server->reset();
  sluice::TellEnd(code);
  return code;
}
