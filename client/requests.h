// The options of ParameterClient, and its requests for pulls and pushes.
//
// Thread safety: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/key_set.h"
#include "common/base/clock.h"
#include "common/table/table_layout.h"
#include "common/transport/transport.h"
#include "common/wire/train_position.h"
#include "proto/scheduler.pb.h"

namespace sluice {

// The parameters that a step reads. Dense tables are pulled whole. The caller keeps all pointers
// valid until the pull has ended.
struct PullRequest {
  struct Sparse {
    uint32_t table;
    std::shared_ptr<const KeySet> keys;
    float* values;  // [keys][dim], filled by the pull
  };
  struct Dense {
    uint32_t table;
    float* values;  // [elements], filled by the pull
  };
  std::vector<Sparse> sparse;
  std::vector<Dense> dense;
  bool evaluation = false;
};

// The updates that a step writes: gradients, or deltas in Geo mode. Values are shared, not copied,
// and must not change until the frame is acknowledged. `owner` keeps them alive.
struct PushRequest {
  struct Sparse {
    uint32_t table;
    std::shared_ptr<const KeySet> keys;
    const float* values;  // [keys][dim]
  };
  struct Dense {
    uint32_t table;
    const float* values;  // [elements]; null: nothing for this table
  };
  std::vector<Sparse> sparse;
  std::vector<Dense> dense;
  std::shared_ptr<const void> owner;
  double weight = 0;       // n_w
  TrainPosition position;  // async and Geo
};

struct ParameterClientLimits {
  absl::Duration timeout = absl::Seconds(60);  // of any one pull or push
  // A part of a frame and a list of a pull's keys cannot be cut. If one needs a longer message,
  // the waiting call fails with INVALID_ARGUMENT, which names the table. 0: no limit.
  uint64_t max_message_bytes = 0;
  // The most unacknowledged pushes and the most tickets not yet waited for. Beyond these a call
  // returns RESOURCE_EXHAUSTED.
  size_t max_frames = 256, max_pulls = 1024;
};

struct ParameterClientOptions {
  std::string job_id;
  uint64_t instance = 0;  // of the job; a pserver refuses another one
  uint32_t rank = 0;      // of this worker in the job
  uint64_t incarnation = 1;
  std::string pass;     // shows the pservers that this is the rank's worker; from the scheduler
  TableLayouts tables;  // of the job; the index is the table id
  Route route;          // to begin with
  uint32_t pipeline_depth = 1;
  ParameterClientLimits limits;
  Transport* transport = nullptr;  // outlives the client, as does the clock
  Clock* clock = nullptr;
  // Called when a pserver answers WRONG_SHARD or another generation. It may block. Null: the
  // route never changes.
  std::function<absl::StatusOr<Route>()> get_route;
};

// Names a pull that was started, for the call that waits for it.
using PullTicket = uint64_t;

}  // namespace sluice
