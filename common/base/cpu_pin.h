// Restricts the calling thread, and the threads that it starts, to some CPUs.
//
// The destructor gives the calling thread its earlier CPUs back.
//
// Thread safety: one thread. The thread that creates a CpuPin also destroys it.
#pragma once

#include <sched.h>

#include <vector>

namespace sluice {

// CPUs [first, first + n) of `allowed`, wrapping around at its end. At most allowed.size() of them.
// REQUIRES: n >= 1; `allowed` is not empty.
std::vector<int> ChooseCpus(const std::vector<int>& allowed, int first, int n);

class CpuPin {
 public:
  // Chooses with ChooseCpus among the CPUs that this thread may use. When the system refuses,
  // nothing changes and cpus() is empty.
  CpuPin(int first, int n);
  ~CpuPin();
  CpuPin(const CpuPin&) = delete;
  CpuPin& operator=(const CpuPin&) = delete;
  const std::vector<int>& cpus() const { return cpus_; }

 private:
  cpu_set_t before_;
  std::vector<int> cpus_;
};

}  // namespace sluice
