#include "server/buffer_budget.h"

namespace sluice {

bool BufferBudget::Take(uint32_t rank, uint64_t bytes) {
  uint64_t taken = taken_[rank].load(std::memory_order_relaxed);
  do {
    if (bytes > most_ || taken > most_ - bytes) return false;
  } while (!taken_[rank].compare_exchange_weak(taken, taken + bytes, std::memory_order_relaxed));
  return true;
}

void BufferBudget::Give(uint32_t rank, uint64_t bytes) {
  taken_[rank].fetch_sub(bytes, std::memory_order_relaxed);
}

}  // namespace sluice
