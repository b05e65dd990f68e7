// Abseil's function that gives up a reference to the message of a Status, for tests under the
// thread sanitizer.
//
// Copies of a Status share one message, and the copy that is destroyed last deletes it. Debian's
// libabsl_status is not built with the sanitizer, so that the sanitizer would not see that the
// other copies gave theirs up before, and would report the delete. This definition takes the place
// of the library's, because a program comes before its libraries. It is linked as an object
// (sluice_test): from an archive it would not be.
//
// The code is valid only for the Abseil release named below. With another one, the sanitizer may
// report false races in Status.
//
// Thread safety: safe from any thread.
#include "absl/base/config.h"

#if defined(ABSL_LTS_RELEASE_VERSION) && ABSL_LTS_RELEASE_VERSION == 20220623

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"

void absl::Status::UnrefNonInlined(uintptr_t rep) {
  status_internal::StatusRep* const shared = RepToPointer(rep);
  // Release: what this thread has read. Acquire: what the others had read when they gave theirs up.
  if (shared->ref.fetch_sub(1, std::memory_order_acq_rel) == 1) delete shared;
}

#endif
