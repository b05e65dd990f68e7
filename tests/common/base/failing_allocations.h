// Makes one allocation of this thread fail, to test what is left when memory runs out.
//
// A test binary that links this has an operator new of its own.
//
// Thread safety: one object in a thread at a time.
#pragma once

#include <new>

namespace sluice {

class FailingAllocation {
 public:
  // The allocation after `succeed` others throws std::bad_alloc, until this is destroyed.
  explicit FailingAllocation(int succeed);
  ~FailingAllocation();
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;
};

// Calls `change`, with one allocation after the other failing, until it succeeds. Calls `check`
// after each failure. Returns the number of failures.
template <class Change, class Check>
int FailEachAllocation(const Change& change, const Check& check) {
  for (int succeed = 0;; ++succeed) {
    try {
      const FailingAllocation failing(succeed);
      change();
      return succeed;
    } catch (const std::bad_alloc&) {
    }
    check();
  }
}

}  // namespace sluice
