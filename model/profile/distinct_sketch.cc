#include "model/profile/distinct_sketch.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace sluice {
namespace {

double Sigma(double x) {
  if (x == 1) return INFINITY;
  double y = 1, z = x, before;
  do {
    x *= x;
    before = z;
    z += x * y;
    y += y;
  } while (z != before);
  return z;
}

double Tau(double x) {
  if (x == 0 || x == 1) return 0;
  double y = 1, z = 1 - x, before;
  do {
    x = std::sqrt(x);
    before = z;
    y *= 0.5;
    z -= (1 - x) * (1 - x) * y;
  } while (z != before);
  return z / 3;
}

}  // namespace

void DistinctSketch::AddHash(uint64_t hash) {
  if (!exact()) return AddToRegister(hash);
  seen_.insert(hash);
  if (seen_.size() <= kExact) return;
  registers_.assign(size_t{1} << kBits, 0);
  for (const uint64_t known : seen_) AddToRegister(known);
  seen_ = {};
}

void DistinctSketch::AddToRegister(uint64_t hash) {
  const uint64_t rest = hash << kBits;
  const int rank = rest == 0 ? 64 - kBits + 1 : __builtin_clzll(rest) + 1;
  uint8_t& stored = registers_[hash >> (64 - kBits)];
  stored = std::max(stored, static_cast<uint8_t>(rank));
}

uint64_t DistinctSketch::Count() const {
  if (exact()) return seen_.size();
  constexpr int kRanks = 64 - kBits;
  std::array<double, kRanks + 2> with_rank{};
  for (const uint8_t rank : registers_) with_rank[rank] += 1;
  const auto m = static_cast<double>(registers_.size());
  double z = m * Tau(1 - with_rank[kRanks + 1] / m);
  for (int rank = kRanks; rank >= 1; --rank) z = 0.5 * (z + with_rank[rank]);
  z += m * Sigma(with_rank[0] / m);
  return static_cast<uint64_t>(std::llround(m * m / (2 * std::log(2.0) * z)));
}

}  // namespace sluice
