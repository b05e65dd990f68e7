#include "tests/common/base/failing_allocations.h"

#include <cstddef>
#include <cstdlib>

namespace {

constexpr int kNever = -1;
thread_local int left = kNever;  // allocations that succeed before one fails

}  // namespace

void* operator new(std::size_t size) {
  if (left == 0) {
    left = kNever;
    throw std::bad_alloc();
  }
  if (left > 0) --left;
  if (void* const memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace sluice {

FailingAllocation::FailingAllocation(int succeed) { left = succeed; }
FailingAllocation::~FailingAllocation() { left = kNever; }

}  // namespace sluice
