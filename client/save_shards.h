// Asks every pserver of a route to write its shards to files.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "common/transport/transport.h"
#include "proto/pserver.pb.h"
#include "proto/scheduler.pb.h"

namespace sluice {

// Calls all pservers at once and waits for the last reply. `request` names the job and where to
// write; its generation is that of the route. Returns the files by name, or the error of a pserver
// with its address.
absl::StatusOr<std::vector<SavedFile>> SaveShardsOnce(Transport* transport, const Route& route,
                                                      SaveShardsRequest request);

}  // namespace sluice
