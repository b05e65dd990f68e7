#include "common/collective/collective.h"

#include <algorithm>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "common/collective/group_fault.h"

namespace sluice {

ArrayPart PartOf(size_t n, uint32_t ranks, uint32_t rank) {
  constexpr size_t kLine = 16;
  const size_t even = n / ranks + (n % ranks != 0);
  const size_t size = (even + kLine - 1) / kLine * kLine;
  const size_t begin = std::min(n, size * rank);
  return {begin, std::min(n, begin + size)};
}

std::optional<uint32_t> RankAtFault(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kRankAtFaultPayload);
  uint32_t rank = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &rank)) return std::nullopt;
  return rank;
}

}  // namespace sluice
