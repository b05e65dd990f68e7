#include "common/base/random_id.h"

#include <sys/random.h>

namespace sluice {

uint64_t RandomId() {
  uint64_t id = 0;
  // getrandom returns so few bytes whole or, when a signal interrupts it, not at all. Dropping the
  // lowest bit leaves room to count up.
  while (id == 0) {
    uint64_t bits = 0;
    if (getrandom(&bits, sizeof(bits), 0) == sizeof(bits)) id = bits >> 1;
  }
  return id;
}

}  // namespace sluice
