// Asks every pserver of a route to write its shards to files.
//
// Thread safety: a free function; it calls all pservers at once and blocks until the last has
// answered.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "common/transport/transport.h"
#include "proto/pserver.pb.h"
#include "proto/scheduler.pb.h"

namespace sluice {

// `request` names the job and where to write; its generation is that of the route. Returns the
// files by name, or the first pserver's error, which names its address.
absl::StatusOr<std::vector<SavedFile>> SaveShardsOnce(Transport* transport, const Route& route,
                                                      SaveShardsRequest request);

}  // namespace sluice
