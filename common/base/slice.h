// Read-only bytes with shared ownership, so that messages travel without copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace sluice {

// Thread safety: immutable. Any thread may use and drop a copy.
class Slice {
 public:
  Slice() = default;
  // `owner` keeps [data, data + size) alive and unchanged. When it is null, the memory must outlive
  // every copy of the slice.
  Slice(const void* data, size_t size, std::shared_ptr<const void> owner)
      : data_(static_cast<const uint8_t*>(data)), size_(size), owner_(std::move(owner)) {}
  static Slice FromString(std::string text) {
    auto owner = std::make_shared<const std::string>(std::move(text));
    const std::string& s = *owner;
    return Slice(s.data(), s.size(), std::move(owner));
  }
  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  const std::shared_ptr<const void>& owner() const { return owner_; }

 private:
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
  std::shared_ptr<const void> owner_;
};

// One message of a stream: its slices in order. Slice borders carry no meaning; a value may
// straddle two slices.
using Message = std::vector<Slice>;

inline size_t MessageSize(const Message& message) {
  size_t n = 0;
  for (const Slice& s : message) n += s.size();
  return n;
}

}  // namespace sluice
