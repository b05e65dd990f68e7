// cutting_worker: sluice-worker whose streams break all the time, over whatever transport.
//
// CUT_EVERY: messages on a stream, on average, until it is cut. At its end it prints how many it
// has cut.
#include <cstdlib>
#include <iostream>
#include <memory>

#include "tests/common/transport/faulty_transport.h"
#include "tests/system/worker_main.h"

namespace sluice {
namespace {

class CountedCuts : public FaultyTransport {
 public:
  using FaultyTransport::FaultyTransport;
  ~CountedCuts() override { std::cout << "cut " << cuts() << " streams" << std::endl; }
};

absl::StatusOr<std::unique_ptr<Transport>> CutStreams(WorkerServer::Options* options) {
  const char* const every = std::getenv("CUT_EVERY");
  if (every == nullptr) return absl::InvalidArgumentError("CUT_EVERY is not set");
  options->threads = 1;
  FaultyTransport::Options cuts;
  cuts.seed = options->identity.rank + 1;
  cuts.mean_messages = std::atoi(every);
  return std::make_unique<CountedCuts>(options->transport, cuts);
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  return sluice::RunWorker("a worker that cuts its streams", sluice::Env::Real(), argc, argv,
                           sluice::CutStreams);
}
