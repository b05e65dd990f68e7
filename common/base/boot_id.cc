#include "common/base/boot_id.h"

#include <fstream>

namespace sluice {

std::string BootId() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

}  // namespace sluice
