#include "server/checkpoints/cut_writer.h"

#include <algorithm>
#include <system_error>
#include <utility>

namespace sluice {

CutWriter::CutWriter(uint32_t threads, std::shared_ptr<RowMemory> row_memory)
    : most_threads_(threads > 0                               ? threads
                    : std::thread::hardware_concurrency() > 4 ? 2
                                                              : 1),
      budget_(0, nullptr, std::move(row_memory)) {}

void CutWriter::Add(std::shared_ptr<JobCut> cut) {
  bool refused = false;
  {
    MutexLock lock(&mutex_);
    refused = stopping_;
    try {
      while (!refused && threads_.size() < most_threads_) threads_.emplace_back([this] { Run(); });
    } catch (const std::system_error&) {
      refused = threads_.empty();
    }
    if (!refused) {
      cuts_.push_back(cut);
      changed_.NotifyAll();
    }
  }
  if (refused) cut->Cancel();
}

void CutWriter::Run() {
  for (;;) {
    std::shared_ptr<JobCut> cut;
    {
      MutexLock lock(&mutex_);
      while (!stopping_ && cuts_.empty()) changed_.Wait(&mutex_);
      if (stopping_) return;
      // All threads share the front cut, each with its own file. So the oldest checkpoint is
      // complete as early as possible, and gives back the memory of its pre-images.
      cut = cuts_.front();
      running_.push_back(cut);
    }
    while (cut->WriteOne()) {
    }
    MutexLock lock(&mutex_);
    running_.erase(std::find(running_.begin(), running_.end(), cut));
    // The first thread that finds no file left removes the cut; others may still write its files.
    const auto at = std::find(cuts_.begin(), cuts_.end(), cut);
    if (at != cuts_.end()) cuts_.erase(at);
  }
}

void CutWriter::Stop() {
  std::deque<std::shared_ptr<JobCut>> cuts;
  std::vector<std::thread> threads;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    cuts.swap(cuts_);
    cuts.insert(cuts.end(), running_.begin(), running_.end());
    threads.swap(threads_);
    changed_.NotifyAll();
  }
  for (const auto& cut : cuts) cut->Cancel();
  for (std::thread& thread : threads) thread.join();
}

std::shared_ptr<PreImageBudget> CutWriter::NewBudget(uint64_t available_memory) {
  constexpr uint64_t kLeast = uint64_t{64} << 20;
  // The other half stays for training itself: new rows, buffered gradients and messages. Memory
  // that earlier cuts have taken is no longer part of what is available, so it is added.
  budget_.SetLimit(std::max(kLeast, budget_.taken() + available_memory / 2));
  return std::make_shared<PreImageBudget>(UINT64_MAX, &budget_);
}

}  // namespace sluice
