#include "server/push_part.h"

#include <cstddef>

namespace sluice {

void PushPart::Shrink() {
  constexpr size_t kKept = 4 << 20;
  if (keys.capacity() * sizeof(uint64_t) > kKept) std::vector<uint64_t>().swap(keys);
  if (values.capacity() * sizeof(float) > kKept) std::vector<float>().swap(values);
  // A part that was refused may have left them.
  message = PayloadReader();
  wire.clear();
}

}  // namespace sluice
