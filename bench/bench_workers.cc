#include "bench/bench_workers.h"

#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

#include "bench/suite.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/security/cert_authority.h"
#include "common/shm_transport/shm_transport.h"
#include "common/transport/grpc_transport.h"

namespace sluice::bench {
namespace {

// Certificates of a worker and a pserver, for the length of a run.
absl::StatusOr<std::shared_ptr<const TemporaryFolder>> MakeCertificates() {
  SLUICE_ASSIGN_OR_RETURN(const std::shared_ptr<const TemporaryFolder> folder,
                          TemporaryFolder::Create());
  const absl::Time now = Clock::Real()->WallNow();
  const CertAuthorityOptions authority{folder->path(), now - absl::Hours(1), now + absl::Hours(24)};
  SLUICE_RETURN_IF_ERROR(MakeAuthority(authority));
  for (const PeerRole role : {PeerRole::kWorker, PeerRole::kPserver})
    SLUICE_RETURN_IF_ERROR(MakeCertificate(authority, role, {}));
  return folder;
}

}  // namespace

absl::StatusOr<std::unique_ptr<BenchWorkers>> BenchWorkers::Start(
    const std::vector<TableConfig>& tables, uint32_t workers, Between between) {
  std::unique_ptr<BenchWorkers> group(new BenchWorkers());
  TlsFiles of_pserver, of_worker;
  if (between == Between::kTls) {
    SLUICE_ASSIGN_OR_RETURN(group->certificates_, MakeCertificates());
    of_pserver = FilesOf(group->certificates_->path(), PeerRoleName(PeerRole::kPserver));
    of_worker = FilesOf(group->certificates_->path(), PeerRoleName(PeerRole::kWorker));
  }
  SLUICE_ASSIGN_OR_RETURN(group->pserver_, PserverProcess::Start(tables, workers, of_pserver));
  for (uint32_t w = 0; w < workers; ++w) {
    GrpcTransport::Options transport;
    SLUICE_ASSIGN_OR_RETURN(transport.credentials, GrpcCredentials::Create(of_worker));
    group->transports_.push_back(std::make_unique<GrpcTransport>(transport));
    if (between == Between::kShm) {
      ShmTransport::Options shm;
      shm.control = group->transports_.back().get();
      group->transports_.push_back(std::make_unique<ShmTransport>(shm));
    }
    const JobSpec& job = group->pserver_->job();
    ParameterClient::Options options;
    options.job_id = job.job_id();
    options.instance = job.instance();
    options.rank = w;
    SLUICE_ASSIGN_OR_RETURN(options.tables,
                            CreateTableLayouts(job.tables(), job.config().train().seed()));
    options.route = job.route();
    options.transport = group->transports_.back().get();
    options.clock = Clock::Real();
    options.get_route = [route = job.route()] { return route; };
    SLUICE_ASSIGN_OR_RETURN(auto client, ParameterClient::Create(std::move(options)));
    group->clients_.push_back(std::move(client));
  }
  return group;
}

BenchWorkers::~BenchWorkers() {
  clients_.clear();
  // The later ones make their calls over the earlier ones.
  while (!transports_.empty()) transports_.pop_back();
}

double BenchWorkers::Run(uint32_t workers,
                         const std::function<absl::Status(uint32_t worker)>& work) {
  const auto must = [&work](uint32_t w) {
    const absl::Status status = work(w);
    if (status.ok()) return;
    std::fprintf(stderr, "worker %u: %s\n", w, status.ToString().c_str());
    std::exit(1);
  };
  const double start = Now();
  std::vector<std::thread> threads;
  for (uint32_t w = 1; w < workers; ++w) threads.emplace_back(must, w);
  must(0);
  for (std::thread& thread : threads) thread.join();
  return Now() - start;
}

}  // namespace sluice::bench
