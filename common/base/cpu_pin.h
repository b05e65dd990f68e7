// While it lives, the calling thread, and threads that it starts, run on some CPUs only.
//
// Thread safety: made and destroyed by the same thread.
#pragma once

#include <sched.h>

#include <vector>

namespace sluice {

// CPUs [first, first + n) of `allowed`, counted round and round. n >= 1; `allowed` is not empty.
std::vector<int> ChooseCpus(const std::vector<int>& allowed, int first, int n);

class CpuPin {
 public:
  // Those of ChooseCpus among the CPUs that this thread may use. When the system refuses, nothing
  // changes and cpus() is empty.
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
