#include "server/shards/eviction.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/base/mix_hash.h"

namespace sluice {

bool EvictionCandidate::operator<(const EvictionCandidate& other) const {
  if (score != other.score) return score < other.score;
  if (last_seen != other.last_seen) return last_seen < other.last_seen;
  return mixed_key < other.mixed_key;  // a bijection of the key: no two rows are equal
}

EvictionOrder::EvictionOrder(const EvictConfig& config, uint32_t dim,
                             std::function<uint32_t(uint64_t)> days_since)
    : config_(config), dim_(dim), days_since_(std::move(days_since)) {}

double EvictionOrder::Score(const RowFacts& row) const {
  switch (config_.score()) {
    case EvictConfig::LAST_USE:
      return 0;  // last_seen is the next criterion
    case EvictConfig::NORM: {
      // The square has the same order as the norm.
      double square = 0;
      for (uint32_t i = 0; i < dim_; ++i)
        square += static_cast<double>(row.weights[i]) * static_cast<double>(row.weights[i]);
      // A file may bring weights that are not finite. NaN has no place in an order.
      return std::isnan(square) ? std::numeric_limits<double>::infinity() : square;
    }
    default:
      break;
  }
  if (config_.half_life_days() == 0 || days_since_ == nullptr) return row.count;
  return row.count *
         std::exp2(-static_cast<double>(days_since_(row.last_seen)) / config_.half_life_days());
}

EvictionCandidate EvictionOrder::Of(const RowFacts& row, uint32_t id) const {
  return {Score(row), row.last_seen, MixHash(row.key), id};
}

void MoveFirstToLeave(size_t n, std::vector<EvictionCandidate>* rows) {
  if (n == 0 || n >= rows->size()) return;
  std::nth_element(rows->begin(), rows->begin() + static_cast<ptrdiff_t>(n), rows->end());
}

}  // namespace sluice
