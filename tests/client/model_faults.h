// The faults of the model check (data_plane_model_test.cc): they come one after another, each some
// operations of the workers after the one before.
//
// Thread safety: Progress is safe from any thread; the faults belong to one.
#pragma once

#include <cstdint>
#include <random>

#include "common/base/mutex.h"
#include "tests/client/cluster_for_test.h"
#include "tests/client/socket_cuts.h"

namespace sluice {

// Counts the operations of workers.
class Progress {
 public:
  explicit Progress(int workers) : running_(workers) {}
  void Step() {
    MutexLock lock(&mutex_);
    ++steps_;
    changed_.NotifyAll();
  }
  // A worker has ended.
  void Done() {
    MutexLock lock(&mutex_);
    --running_;
    changed_.NotifyAll();
  }
  // Waits for n operations. False: all workers have ended.
  bool AwaitSteps(int n) {
    MutexLock lock(&mutex_);
    const int until = steps_ + n;
    while (running_ > 0 && steps_ < until) changed_.Wait(&mutex_);
    return running_ > 0;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int steps_ ABSL_GUARDED_BY(mutex_) = 0;
  int running_ ABSL_GUARDED_BY(mutex_);
};

class ModelFaults {
 public:
  struct Counts {
    int cuts = 0, stalls = 0, restarts = 0, routes = 0;
  };
  ModelFaults(TestCluster* cluster, uint64_t seed) : cluster_(cluster), random_(seed) {}

  // Returns when all workers have ended, with nothing refused and every gate open.
  void Run(Progress* progress) {
    while (progress->AwaitSteps(1 + static_cast<int>(random_() % 12))) {
      const int pserver = static_cast<int>(random_() % cluster_->job().route().pservers_size());
      switch (random_() % 8) {
        case 0:
        case 1:
        case 2:
          Cut();
          break;
        case 3:
        case 4:
          Stall(pserver);
          break;
        case 5:
          cluster_->RestartServer(pserver);
          ++counts_.restarts;
          break;
        case 6:
          cluster_->RenewRoute(random_() % 2 == 0);
          ++counts_.routes;
          break;
        default:
          refused_ = !refused_;
          cluster_->network()->RefuseSharedMemory(refused_);
          Cut();  // a stream that comes again meets the refusal
      }
    }
    cluster_->network()->RefuseSharedMemory(false);
  }
  // No message comes any more: a pserver that stalls need not wait for one.
  void GiveUp() {
    for (int i = 0; i < cluster_->job().route().pservers_size(); ++i) cluster_->gate(i)->GiveUp();
  }
  const Counts& counts() const { return counts_; }

 private:
  void Cut() { counts_.cuts += CutOneSocket(random_()) ? 1 : 0; }
  // The pserver stops to read until its rings are full, or nearly so: some of its streams may be
  // cut in the middle of a message then.
  void Stall(int pserver) {
    Gate* const gate = cluster_->gate(pserver);
    gate->Shut();
    gate->AwaitMessage();
    for (int cuts = static_cast<int>(random_() % 3); cuts > 0; --cuts) Cut();
    gate->Open();
    ++counts_.stalls;
  }

  TestCluster* const cluster_;
  std::mt19937_64 random_;
  bool refused_ = false;  // shared memory
  Counts counts_;
};

}  // namespace sluice
