#include "common/security/close_hook.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <unordered_map>
#include <utility>

#include "common/base/mutex.h"
#include "common/security/system_calls.h"

namespace sluice {
namespace {

// As many as Linux lets a process open by default. The system gives memory only to pages in use.
constexpr int kMaxWatched = 1 << 20;

// Relaxed: whoever gets to know a descriptor after it was watched has synchronized with the thread
// that watched it. Initialized before any code runs, as close may be called by then.
std::array<std::atomic<bool>, kMaxWatched> is_watched;

class Watches {
 public:
  // Never destroyed: descriptors are closed until the process ends.
  static Watches& OfProcess() {
    static Watches& watches = *new Watches;
    return watches;
  }

  void Add(int fd, std::function<void()> on_close) {
    MutexLock lock(&mutex_);
    on_close_[fd] = std::move(on_close);
  }

  std::function<void()> Take(int fd) {
    MutexLock lock(&mutex_);
    const auto found = on_close_.find(fd);
    if (found == on_close_.end()) return nullptr;
    std::function<void()> on_close = std::move(found->second);
    on_close_.erase(found);
    return on_close;
  }

 private:
  Mutex mutex_;
  std::unordered_map<int, std::function<void()>> on_close_ ABSL_GUARDED_BY(mutex_);
};

void TellOfClose(int fd) {
  // If two threads close it by mistake, only one of them takes the function.
  if (!is_watched[fd].exchange(false, std::memory_order_relaxed)) return;
  if (const auto on_close = Watches::OfProcess().Take(fd)) on_close();
}

}  // namespace

bool WatchClose(int fd, std::function<void()> on_close) {
  if (fd < 0 || fd >= kMaxWatched) return false;
  Watches::OfProcess().Add(fd, std::move(on_close));
  is_watched[fd].store(true, std::memory_order_relaxed);
  return true;
}

}  // namespace sluice

// The linker resolves the calls of shared libraries to this one, because a program comes before its
// libraries.
extern "C" {

__attribute__((visibility("default"))) int close(int fd) {
  if (fd >= 0 && fd < sluice::kMaxWatched &&
      sluice::is_watched[fd].load(std::memory_order_relaxed)) {
    sluice::TellOfClose(fd);
  }
  return sluice::SystemClose(fd);
}

}  // extern "C"
