#include "server/shards/admission_sketch.h"

#include <algorithm>
#include <cstring>

#include "common/base/mix_hash.h"

namespace sluice {
namespace {
// The hashes of the sketch depend on nothing but the key, so that a new job can go on with the
// counters of a checkpoint, whatever its seed.
constexpr uint64_t kSketchSeed = 0x5A1E6D2F9C3B8471u;
}  // namespace

AdmissionSketch::AdmissionSketch(size_t bytes)
    : width_(std::max<uint64_t>(1, bytes / (kDepth * sizeof(uint16_t)))),
      counters_(kDepth * width_) {}

size_t AdmissionSketch::Place(uint64_t key, uint32_t row) const {
  const uint64_t hash = CombineHash(kSketchSeed + row, key);
  const auto in_row = static_cast<uint64_t>((static_cast<unsigned __int128>(hash) * width_) >> 64);
  return row * width_ + in_row;
}

void AdmissionSketch::Add(uint64_t key) {
  any_ = true;
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

std::string AdmissionSketch::Image() const {
  if (!any_) return "";
  return std::string(reinterpret_cast<const char*>(counters_.data()),
                     counters_.size() * sizeof(uint16_t));
}

bool AdmissionSketch::Restore(std::string_view image) {
  if (image.empty()) {
    std::fill(counters_.begin(), counters_.end(), uint16_t{0});
    any_ = false;
    return true;
  }
  if (image.size() != counters_.size() * sizeof(uint16_t)) return false;
  std::memcpy(counters_.data(), image.data(), image.size());
  any_ = true;
  return true;
}

AdmissionRule::AdmissionRule(const AdmitConfig& config, uint64_t sketch_bytes, uint64_t stream)
    : config_(config), stream_(stream), sketch_(sketch_bytes) {}

bool AdmissionRule::Admits(uint64_t key) const {
  const uint32_t count = sketch_.Count(key);
  if (config_.probability() == 0) return count >= config_.after();
  // Once the counter stands still, so would the hash.
  if (count == AdmissionSketch::kMost) return true;
  const uint64_t hash = CombineHash(CombineHash(stream_, key), count);
  return static_cast<double>(hash >> 11) * 0x1p-53 < config_.probability();
}

}  // namespace sluice
