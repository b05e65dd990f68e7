#include "server/available_memory.h"

#include <fstream>

namespace sluice {

uint64_t AvailableMemory(const std::string& path) {
  // Not through Env: files of /proc have no size.
  std::ifstream file(path);
  std::string name, unit;
  uint64_t kib = 0;
  while (file >> name >> kib) {
    std::getline(file, unit);
    if (name == "MemAvailable:") return kib << 10;
  }
  return UINT64_MAX;
}

}  // namespace sluice
