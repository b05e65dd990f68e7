// Says what the workers of a collective job exchange in a step: which part of the dense tables, and
// in how many messages.
//  Gradients travel in batches (gradient_buckets.h), over Gloo between hosts. For each batch, a
//  worker exchanges four messages with every other worker, in both directions. They are the
//  operation's header, the values that the other worker reduces, the reduced values, and an
//  acknowledgement. A batch of up to OperationHeader::kMaxInlineBytes travels with the header, in
//  one message, and goes whole to every other worker. Large arrays are cut into more messages,
//  whose cost is that of their bytes.
//
// Thread safety: pure functions.
#pragma once

#include "absl/status/status.h"
#include "proto/config.pb.h"
#include "proto/plan.pb.h"

namespace sluice::plan {

// Sets the bytes of the dense tables, the fields of `costs` for the exchange between workers, and
// the part of the dense tables that `job` leaves on pservers in collective mode. A job of another
// mode is taken as one whose workers keep all dense tables. `costs` may be those of an earlier
// plan, in which the tables were elsewhere. `job` is effective. Errors of ModelSpec::Create.
absl::Status SetDenseExchange(const JobConfig& job, PlanCosts* costs);

}  // namespace sluice::plan
