// A library to preload that steps the time of day of a process, as if somebody set the machine's
// clock: the file $CLOCK_STEP_FILE holds the step in nanoseconds (int64), and may change at any
// time. Waits of the process until a time of day follow it, as the kernel's do.
//
// Thread safety: safe.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

namespace {

constexpr int64_t kSecond = 1'000'000'000;
// How soon a wait that has begun follows a step.
constexpr int64_t kLook = kSecond / 50;

// Finds the function that one of ours replaces. `found` is an atomic and not a static variable with
// an initializer: a thread that waits for another one's initialization calls syscall, and ours
// would wait for its own again, until the stack is full.
template <class Function>
Function* Next(const char* name, std::atomic<Function*>* found) {
  Function* next = found->load(std::memory_order_relaxed);  // all threads find the same one
  if (next == nullptr) {
    next = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
    found->store(next, std::memory_order_relaxed);
  }
  return next;
}

std::atomic<int (*)(clockid_t, timespec*)> g_clock_gettime{nullptr};
std::atomic<long (*)(long, ...)> g_syscall{nullptr};

int64_t Step() {
  static const volatile int64_t* const step = []() -> const volatile int64_t* {
    static const int64_t none = 0;
    const char* file = getenv("CLOCK_STEP_FILE");
    const int fd = file == nullptr ? -1 : open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return &none;
    void* shared = mmap(nullptr, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    return shared == MAP_FAILED ? &none : static_cast<const volatile int64_t*>(shared);
  }
  ();
  return *step;
}

int64_t MachineNow() {
  timespec now;
  Next("clock_gettime", &g_clock_gettime)(CLOCK_REALTIME, &now);
  return now.tv_sec * kSecond + now.tv_nsec;
}

timespec ToTimespec(int64_t ns) { return {ns / kSecond, ns % kSecond}; }

}  // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* now) noexcept {
  if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)
    return Next("clock_gettime", &g_clock_gettime)(clock, now);
  *now = ToTimespec(MachineNow() + Step());
  return 0;
}

extern "C" int gettimeofday(timeval* now, void*) noexcept {
  const timespec exact = ToTimespec(MachineNow() + Step());
  *now = {exact.tv_sec, exact.tv_nsec / 1000};
  return 0;
}

extern "C" time_t time(time_t* out) noexcept {
  const time_t now = (MachineNow() + Step()) / kSecond;
  if (out != nullptr) *out = now;
  return now;
}

// The futexes of Abseil's waits, which gRPC's timers use, have a time of day as their deadline.
extern "C" long syscall(long number, ...) noexcept {
  const auto next = Next("syscall", &g_syscall);
  va_list list;
  va_start(list, number);
  long a[6];
  for (long& argument : a) argument = va_arg(list, long);
  va_end(list);
  const auto* until = reinterpret_cast<const timespec*>(a[3]);
  if (number != SYS_futex || (a[1] & FUTEX_CLOCK_REALTIME) == 0 || until == nullptr) {
    return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  }
  for (;;) {
    const int64_t now = MachineNow();
    const int64_t left = until->tv_sec * kSecond + until->tv_nsec - (now + Step());
    if (left <= 0) {
      errno = ETIMEDOUT;
      return -1;
    }
    const timespec look = ToTimespec(now + (left < kLook ? left : kLook));
    const long rc = next(number, a[0], a[1], a[2], &look, a[4], a[5]);
    if (rc != -1 || errno != ETIMEDOUT) return rc;
  }
}
