// Applies the parts of a push to the shards of a view, and reads the parts of a pull from them.
//
// A part whose shard is not here gets the error PART_WRONG_SHARD.
// REQUIRES: RequestCheck has accepted the message.
//
// Thread safety: free functions, safe from any thread. Shards lock themselves, one at a time.
#pragma once

#include "absl/status/status.h"
#include "common/table/table_layout.h"
#include "common/wire/frame.h"
#include "server/requests/job_view.h"
#include "server/requests/reply_writer.h"
#include "server/shards/shard.h"

namespace sluice {

// Bytes of the array of a push part.
size_t PushPartBytes(const TableLayout& layout, uint32_t rows);

// Errors of the parts of a push that were not applied; the first error of each kind.
struct PushFaults {
  absl::Status not_finite;  // INVALID_ARGUMENT: a value is NaN or Inf, and the job must fail
  absl::Status malformed;   // INVALID_ARGUMENT: the rows are not those of the shard
};

// Takes the parts of the push from the payload. Checks each part, then applies it with its
// sequence. A part that was not applied gets an error in the reply, and the others are still
// applied; an applied delta gets the resulting values. RESOURCE_EXHAUSTED, marked with the reason
// kRoom: more gradients of the rank would wait than its BufferBudget allows; parts before are
// buffered, and later ones are left out. `scratch` is reused from part to part.
absl::Status ApplyPushParts(const JobView& view, const TableLayouts& layouts, uint32_t rank,
                            uint64_t incarnation, const Push& push, PayloadReader* payload,
                            PushPart* scratch, ReplyWriter* reply, PushFaults* faults);

// Adds the current values of the parts to the reply; the keys come from the payload. Returns the
// bytes of all values.
size_t ReadPullParts(const JobView& view, const TableLayouts& layouts, const Parts& parts,
                     PayloadReader payload, ReplyWriter* reply);

}  // namespace sluice
