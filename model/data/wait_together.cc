#include "model/data/wait_together.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace sluice {

void WaitTogether(size_t n, absl::FunctionRef<void(size_t i)> body) {
  constexpr size_t kMostThreads = 16;
  std::atomic<size_t> next{0};  // relaxed: each index is drawn once, and join orders the rest
  const auto draw = [&] {
    for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < n;) body(i);
  };
  std::vector<std::thread> threads;
  while (threads.size() + 1 < std::min(n, kMostThreads)) threads.emplace_back(draw);
  draw();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace sluice
