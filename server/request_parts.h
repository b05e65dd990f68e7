// The parts of a request on the shards of a view: applies those of a push, reads those of a pull.
//
// A shard that is not here gives its part the error PART_WRONG_SHARD. REQUIRES: RequestCheck has
// accepted the message.
//
// Thread safety: free functions; shards lock themselves, one at a time.
#pragma once

#include "absl/status/status.h"
#include "common/table/table_layout.h"
#include "common/wire/frame.h"
#include "server/job_view.h"
#include "server/reply_writer.h"
#include "server/shard.h"

namespace sluice {

// Takes the parts of the push from the payload. Each part is checked, then applied with its
// sequence; a part that was not applied gets an error in the reply, and an applied delta the values
// that it made. INVALID_ARGUMENT: a value is NaN or Inf, and the job must fail; the other parts are
// applied all the same. `scratch` is reused from part to part.
absl::Status ApplyPushParts(const JobView& view, const TableLayouts& layouts, uint32_t rank,
                            uint64_t incarnation, const Push& push, PayloadReader* payload,
                            PushPart* scratch, ReplyWriter* reply);

// Adds the current values of the parts to the reply; the keys come from the payload. Returns the
// bytes of all values.
size_t ReadPullParts(const JobView& view, const TableLayouts& layouts, const Parts& parts,
                     PayloadReader payload, ReplyWriter* reply);

}  // namespace sluice
