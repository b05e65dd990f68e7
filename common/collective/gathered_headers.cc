#include "common/collective/gathered_headers.h"

#include <cstring>

namespace sluice {

void GatheredHeaders::Put(size_t place, const OperationHeader& header) {
  std::memcpy(&floats_[place * kFloats], &header, sizeof header);
}

OperationHeader GatheredHeaders::At(size_t place) const {
  OperationHeader header;
  std::memcpy(static_cast<void*>(&header), &floats_[place * kFloats], sizeof header);
  return header;
}

}  // namespace sluice
