#include "server/shards/admission_sketch.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "common/base/mix_hash.h"

namespace sluice {
namespace {
// The hashes of the sketch depend on nothing but the key, so that a new job can go on with the
// counters of a checkpoint, whatever its seed.
constexpr uint64_t kSketchSeed = 0x5A1E6D2F9C3B8471u;
constexpr double kE = 2.718281828459045;
}  // namespace

AdmissionSketch::AdmissionSketch(size_t bytes)
    : width_(std::max<uint64_t>(1, bytes / (kDepth * sizeof(uint16_t)))),
      most_updates_(std::max<uint64_t>(1, static_cast<uint64_t>(static_cast<double>(width_) / kE))),
      counters_(kDepth * width_) {}

size_t AdmissionSketch::Place(uint64_t key, uint32_t row) const {
  const uint64_t hash = CombineHash(kSketchSeed + row, key);
  const auto in_row = static_cast<uint64_t>((static_cast<unsigned __int128>(hash) * width_) >> 64);
  return row * width_ + in_row;
}

void AdmissionSketch::Add(uint64_t key) {
  ++updates_;
  for (uint32_t row = 0; row < kDepth; ++row) {
    uint16_t& counter = counters_[Place(key, row)];
    counter = static_cast<uint16_t>(counter + (counter != kMost));
  }
}

uint32_t AdmissionSketch::Count(uint64_t key) const {
  uint32_t least = kMost;
  for (uint32_t row = 0; row < kDepth; ++row)
    least = std::min<uint32_t>(least, counters_[Place(key, row)]);
  return least;
}

void AdmissionSketch::Age() {
  for (; updates_ >= most_updates_; updates_ /= 2, ++halvings_) {
    for (uint16_t& counter : counters_) counter /= 2;
  }
}

std::string AdmissionSketch::Image() const {
  if (updates_ == 0 && halvings_ == 0) return "";
  const size_t bytes = counters_.size() * sizeof(uint16_t);
  std::string image(bytes + sizeof(updates_) + sizeof(halvings_), '\0');
  std::memcpy(&image[0], counters_.data(), bytes);
  std::memcpy(&image[bytes], &updates_, sizeof(updates_));
  std::memcpy(&image[bytes + sizeof(updates_)], &halvings_, sizeof(halvings_));
  return image;
}

bool AdmissionSketch::Restore(std::string_view image) {
  const size_t bytes = counters_.size() * sizeof(uint16_t);
  const bool counts_updates = image.size() == bytes + sizeof(updates_) + sizeof(halvings_);
  if (!image.empty() && image.size() != bytes && !counts_updates) return false;
  updates_ = halvings_ = 0;
  if (image.empty()) {
    std::fill(counters_.begin(), counters_.end(), uint16_t{0});
    return true;
  }
  std::memcpy(counters_.data(), image.data(), bytes);
  if (counts_updates) {
    std::memcpy(&updates_, &image[bytes], sizeof(updates_));
    std::memcpy(&halvings_, &image[bytes + sizeof(updates_)], sizeof(halvings_));
  } else {
    // Each update went to one counter of a row.
    const auto first_row = counters_.begin();
    updates_ = std::accumulate(first_row, first_row + static_cast<ptrdiff_t>(width_), uint64_t{0});
  }
  return true;
}

AdmissionRule::AdmissionRule(const AdmitConfig& config, uint64_t sketch_bytes, uint64_t stream)
    : config_(config), stream_(stream), sketch_(sketch_bytes) {}

bool AdmissionRule::Admits(uint64_t key) const {
  const uint32_t count = sketch_.Count(key);
  if (config_.probability() == 0) return count >= config_.after();
  // Once the counter stands still, so would the hash.
  if (count == AdmissionSketch::kMost) return true;
  // A halved count comes again, and must not draw the same.
  const uint64_t draw = count + (uint64_t{sketch_.halvings()} << 16);
  const uint64_t hash = CombineHash(CombineHash(stream_, key), draw);
  return static_cast<double>(hash >> 11) * 0x1p-53 < config_.probability();
}

}  // namespace sluice
