// Makes the Collective of an engine by its name.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/collective/collective.h"
#include "common/collective/collective_engine.h"

namespace sluice {

// CollectiveOptions::timeout is at most this.
inline constexpr absl::Duration kMaxCollectiveTimeout = absl::Hours(24);

// `engine`:
//   shm        ranks on one host
//   gloo       ranks anywhere, over plain TCP; UNIMPLEMENTED in a build without Gloo
//   two_level  shm inside each host, gloo between one rank of each
//   nccl       ranks with a GPU each, which CollectiveOptions::cuda_device names; errors as in
//              nccl_engine.h
//   auto       whichever of the first three fits where the ranks are; Join decides when it
//              sees all cards
// INVALID_ARGUMENT for another name, and for options that the engine cannot work with.
absl::StatusOr<std::unique_ptr<Collective>> MakeCollective(const std::string& engine,
                                                           const CollectiveOptions& options);

}  // namespace sluice
