// The workers of the end-to-end rows: ParameterClients of one PserverProcess. Each has its own
// transport and thread, as in worker processes.
//
// Thread safety: one thread.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "bench/pserver_process.h"
#include "bench/temporary_folder.h"
#include "client/parameter_client.h"

namespace sluice::bench {

class BenchWorkers {
 public:
  // The connection between workers and pserver.
  enum class Between { kGrpc, kTls, kShm };
  // Job, pserver process and clients.
  static absl::StatusOr<std::unique_ptr<BenchWorkers>> Start(const std::vector<TableConfig>& tables,
                                                             uint32_t workers,
                                                             Between between = Between::kGrpc);
  ~BenchWorkers();

  ParameterClient* client(uint32_t worker) { return clients_[worker].get(); }
  uint32_t size() const { return static_cast<uint32_t>(clients_.size()); }

  // Runs work(w) for the first `workers`, each on its own thread, and returns the seconds until the
  // last one is done. A status that is not OK ends the process, because there is no figure then.
  double Run(uint32_t workers, const std::function<absl::Status(uint32_t worker)>& work);

 private:
  BenchWorkers() = default;

  std::shared_ptr<const TemporaryFolder> certificates_;  // null: no TLS
  std::unique_ptr<PserverProcess> pserver_;
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<std::unique_ptr<ParameterClient>> clients_;
};

}  // namespace sluice::bench
