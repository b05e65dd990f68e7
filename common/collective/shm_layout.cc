#include "common/collective/shm_layout.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/collective/operation_header.h"

namespace sluice {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kMinChunk = 4 << 10, kMaxChunk = 16 << 20;

}  // namespace

ShmLayout ShmLayout::ForChunks(size_t chunk_bytes, uint32_t ranks) {
  const size_t chunk = std::clamp(chunk_bytes, kMinChunk, kMaxChunk);
  ShmLayout layout;
  layout.ranks = ranks;
  layout.piece_bytes = std::max<size_t>(1, chunk / ranks / kPage) * kPage;
  return layout;
}

absl::Status ShmLayout::Check() const {
  if (ranks == 0 || ranks > kMaxRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("a group on one host has 1 to ", kMaxRanks, " ranks, not ", ranks));
  }
  if (slots != kSlots || piece_bytes == 0 || piece_bytes % kPage != 0 || piece_bytes > kMaxChunk) {
    return absl::InvalidArgumentError(absl::StrCat("the shared memory of the group has ", slots,
                                                   " slots with pieces of ", piece_bytes,
                                                   " bytes, which is not a possible layout"));
  }
  return absl::OkStatus();
}

size_t ShmLayout::board_bytes() const {
  constexpr size_t kLine = 64;
  const size_t bytes = kLine * (4 + ranks + slots * ranks);
  return (bytes + kPage - 1) / kPage * kPage;
}

}  // namespace sluice
