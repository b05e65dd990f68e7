// pushing_worker RANK LIFE: pushes to the job on its standard input, through shared memory and
// without end, until it is killed. It writes S when it starts a push, and A when all but the last
// two are acknowledged.
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <iterator>
#include <string>

#include "common/shm_transport/shm_transport.h"
#include "common/transport/grpc_transport.h"
#include "tests/client/pushed_items.h"

namespace {

int Fail(const absl::Status& status) {
  std::cerr << "pushing_worker: " << status << std::endl;
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace sluice;  // NOLINT
  JobSpec job;
  const std::string bytes(std::istreambuf_iterator<char>(std::cin), {});
  if (argc != 3 || !job.ParseFromString(bytes))
    return Fail(absl::InvalidArgumentError("usage: pushing_worker RANK LIFE < job"));
  const auto rank = static_cast<uint32_t>(std::atoi(argv[1]));
  GrpcTransport control;
  ShmTransport::Options shm;
  shm.control = &control;
  ShmTransport transport(shm);
  ParameterClient::Options options = ClientOptions(job, &transport, rank);
  options.incarnation = std::strtoull(argv[2], nullptr, 10);
  const uint64_t life = options.incarnation;
  auto client = ParameterClient::Create(std::move(options));
  if (!client.ok()) return Fail(client.status());
  for (uint64_t push = 0;; ++push) {
    if (write(STDOUT_FILENO, "S", 1) != 1) return 1;
    const std::vector<uint32_t> items = PushedItems(life, push);
    absl::Status status = (*client)->StartPush(CountingPush(**client, rank, items, -1));
    if (status.ok()) status = (*client)->WaitPushes(kInFlight);
    if (!status.ok()) return Fail(status);
    if (write(STDOUT_FILENO, "A", 1) != 1) return 1;
  }
}
