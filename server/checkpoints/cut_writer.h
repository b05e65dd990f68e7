// The threads that write checkpoints in the background, and the memory that they may use.
//
// Thread safety: safe from any thread. Call Stop and the destructor on one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "common/base/mutex.h"
#include "server/checkpoints/job_cut.h"
#include "server/shards/pre_images.h"

namespace sluice {

class CutWriter {
 public:
  // `threads`: the most threads, which start with the first cut. 0: one, or two if the machine has
  // more than 4 processors, so that training keeps the others.
  // `row_memory`: what the rows of the process are bounded by; may be null.
  explicit CutWriter(uint32_t threads = 0, std::shared_ptr<RowMemory> row_memory = nullptr);
  ~CutWriter() { Stop(); }

  // Writes the files of the cut. The cut fails when no thread can be started, and is cancelled
  // after Stop.
  void Add(std::shared_ptr<JobCut> cut);
  // Cancels all cuts and waits for the files under way, which end at their next piece.
  void Stop();

  // A budget for one cut: all cuts of the process together may use half of the memory that is
  // available now, and at least 64 MiB. The writer outlives it.
  std::shared_ptr<PreImageBudget> NewBudget(uint64_t available_memory);

 private:
  void Run();

  const uint32_t most_threads_;
  PreImageBudget budget_;

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<std::shared_ptr<JobCut>> cuts_ ABSL_GUARDED_BY(mutex_);      // in their order
  std::vector<std::shared_ptr<JobCut>> running_ ABSL_GUARDED_BY(mutex_);  // of each thread
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
