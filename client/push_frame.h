// A push as it is kept until acknowledged: the wire form of each shard's part, shared with the
// caller's arrays.
//
// Thread safety: immutable once made, but for an open one, whose owner locks.
//
// Memory: f32 parts point into the caller's arrays, which PushRequest::owner keeps; bf16 parts are
// converted once, here.
#pragma once

#include <cstdint>
#include <vector>

#include "client/parameter_client.h"
#include "client/shard_index.h"
#include "common/wire/frame.h"

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
  uint64_t task_id = 0, task_end = 0;
  bool open = false;                    // parts are still to come
  std::vector<uint64_t> pulled_others;  // by link
  std::vector<Part> parts;              // by flat shard
};

// INVALID_ARGUMENT names the table whose gradient holds a NaN or Inf, is given twice, has keys that
// are not grouped by its shards, or is not of its kind.
absl::StatusOr<PushFrame> MakePushFrame(const ShardIndex& index, const PushRequest& request);

// INVALID_ARGUMENT: parts of `table` are given twice in one frame.
absl::Status PushedTwice(const TableLayout& table);

}  // namespace sluice
