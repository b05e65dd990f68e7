// A push in wire form, one part for each shard. It is kept until all of them have acknowledged it.
//
// Thread safety: immutable. An open frame still changes and is guarded by the owner's lock.
//
// Memory: f32 parts point into the caller's arrays, which PushRequest::owner keeps alive. bf16
// parts are converted into a copy.
#pragma once

#include <cstdint>
#include <vector>

#include "client/requests.h"
#include "client/shard_index.h"
#include "common/wire/frame.h"
#include "common/wire/train_position.h"

namespace sluice {

struct PushFrame {
  struct Part {
    uint32_t rows = 0;
    Slice keys, values;
    size_t bytes() const { return keys.size() + values.size(); }
  };
  uint64_t sequence = 0;
  double weight = 0;
  bool delta = false;
  TrainPosition position;
  bool open = false;                    // further parts will be added
  std::vector<uint64_t> pulled_others;  // by link
  std::vector<Part> parts;              // by flat shard
};

// INVALID_ARGUMENT when a gradient holds a NaN or Inf, its keys are not grouped by shard, or a
// table is given twice or is of the other kind. The error names the table.
absl::StatusOr<PushFrame> MakePushFrame(const ShardIndex& index, const PushRequest& request);

// Returns the INVALID_ARGUMENT for a table whose parts are given twice in one frame.
absl::Status PushedTwice(const TableLayout& table);

}  // namespace sluice
