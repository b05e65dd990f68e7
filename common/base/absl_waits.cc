// Makes Abseil's timed waits last as long as the caller asked, even if the clock is set.
//
// gRPC's timers (deadlines, reconnects, keepalive) wait in Abseil until a time of day. When the
// clock is set back by an hour, they stand still for an hour. Abseil lets a program replace the
// functions under its waits; these turn the time of day into a duration when a wait begins. They
// are linked into every program as objects (sluice_binary), not from a library: a definition in an
// archive would lose against Abseil's.
//
// The code is valid only for the Abseil release named below, whose ThreadIdentity begins its
// semaphore with the 32-bit count of posts.
//
// Thread safety: safe from any thread.
#include "absl/base/config.h"

#if defined(__linux__) && defined(ABSL_LTS_RELEASE_VERSION) && ABSL_LTS_RELEASE_VERSION == 20220623

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "absl/base/internal/thread_identity.h"
#include "absl/synchronization/internal/create_thread_identity.h"
#include "absl/synchronization/internal/per_thread_sem.h"

namespace {

using absl::base_internal::ThreadIdentity;

constexpr int64_t kSecond = 1'000'000'000;

int64_t Nanoseconds(const timespec& time) { return time.tv_sec * kSecond + time.tv_nsec; }

int64_t Now(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return Nanoseconds(now);
}

std::atomic<int32_t>* Posts(ThreadIdentity* identity) {
  return reinterpret_cast<std::atomic<int32_t>*>(identity->waiter_state.data);
}

bool TakePost(std::atomic<int32_t>* posts) {
  int32_t n = posts->load(std::memory_order_relaxed);
  // Acquire pairs with the release in Post: the waiter sees what the poster did before.
  while (n != 0) {
    if (posts->compare_exchange_weak(n, n - 1, std::memory_order_acquire,
                                     std::memory_order_relaxed)) {
      return true;
    }
  }
  return false;
}

// FUTEX_WAIT measures its relative timeout on the monotonic clock. Null means no timeout.
void WaitForPost(std::atomic<int32_t>* posts, const timespec* timeout) {
  syscall(SYS_futex, posts, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 0, timeout);
}

}  // namespace

extern "C" {

void ABSL_INTERNAL_C_SYMBOL(AbslInternalPerThreadSemPost)(ThreadIdentity* identity) {
  std::atomic<int32_t>* const posts = Posts(identity);
  if (posts->fetch_add(1, std::memory_order_release) == 0) {
    syscall(SYS_futex, posts, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1);
  }
}

bool ABSL_INTERNAL_C_SYMBOL(AbslInternalPerThreadSemWait)(
    absl::synchronization_internal::KernelTimeout timeout) {
  ThreadIdentity* const identity =
      absl::synchronization_internal::GetOrCreateCurrentThreadIdentity();
  std::atomic<int32_t>* const posts = Posts(identity);
  // An unbounded wait reads no clock.
  int64_t end = 0;
  if (timeout.has_timeout()) {
    end = Nanoseconds(timeout.MakeAbsTimespec()) - Now(CLOCK_REALTIME) + Now(CLOCK_MONOTONIC);
  }
  while (!TakePost(posts)) {
    timespec left = {};
    if (timeout.has_timeout()) {
      const int64_t ns = end - Now(CLOCK_MONOTONIC);
      if (ns <= 0) return TakePost(posts);
      left = {ns / kSecond, ns % kSecond};
    }
    // The loop tells apart why the wait returned: a wakeup, a signal, an earlier post, the timeout.
    WaitForPost(posts, timeout.has_timeout() ? &left : nullptr);
  }
  return true;
}

}  // extern "C"

#endif
