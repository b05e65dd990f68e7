#include "common/base/cpu_pin.h"

#include <algorithm>

namespace sluice {

std::vector<int> ChooseCpus(const std::vector<int>& allowed, int first, int n) {
  std::vector<int> cpus;
  for (int i = 0; i < std::min<int>(n, allowed.size()); ++i) {
    cpus.push_back(allowed[(static_cast<size_t>(first) + i) % allowed.size()]);
  }
  return cpus;
}

CpuPin::CpuPin(int first, int n) {
  if (sched_getaffinity(0, sizeof before_, &before_) != 0) return;
  std::vector<int> allowed;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &before_)) allowed.push_back(cpu);
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  const std::vector<int> cpus = ChooseCpus(allowed, first, n);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  // cpus_ stays empty on failure, so that the destructor restores nothing.
  if (sched_setaffinity(0, sizeof set, &set) == 0) cpus_ = cpus;
}

CpuPin::~CpuPin() {
  if (!cpus_.empty()) sched_setaffinity(0, sizeof before_, &before_);
}

}  // namespace sluice
