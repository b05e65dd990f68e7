#include "common/security/listener_guard.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/security/accept_reserve.h"

namespace sluice {

// Guarded by the mutex of GuardedListeners, apart from `check`, which is constant.
struct ListenerGuard::State {
  const Check check;
  int listeners = 0;
  int running = 0;     // checks
  bool ended = false;  // the guard is gone
};

// The listeners of the process that have a guard.
class GuardedListeners {
 public:
  using State = ListenerGuard::State;

  // Never destroyed: listeners may outlive the end of main.
  static GuardedListeners& OfProcess() {
    static GuardedListeners& listeners = *new GuardedListeners;
    return listeners;
  }

  // Each socket begins to listen here, so a descriptor that is used again has no old guards.
  void Note(int listener) {
    MutexLock lock(&mutex_);
    if (guards_of_thread == nullptr) {
      guards_.erase(listener);
      return;
    }
    Guards& guards = guards_[listener];
    guards.clear();
    for (const Nested* one = guards_of_thread; one != nullptr; one = one->outer) {
      guards.push_back(one->guard);
      ++one->guard->listeners;
    }
  }

  bool Admits(int listener, int connection, const sockaddr_storage& peer) {
    Guards guards;
    {
      MutexLock lock(&mutex_);
      const auto found = guards_.find(listener);
      if (found == guards_.end()) return true;
      // Copied, because the checks run without the lock: they ask the kernel.
      guards = found->second;
    }
    return std::all_of(guards.begin(), guards.end(), [&](const std::shared_ptr<State>& guard) {
      return Admits(guard.get(), connection, peer);
    });
  }

  void End(State* guard) {
    MutexLock lock(&mutex_);
    guard->ended = true;
    // The check belongs to the owner of the guard, who is about to be destroyed.
    while (guard->running > 0) ended_.Wait(&mutex_);
  }

  int Count(const State& guard) {
    MutexLock lock(&mutex_);
    return guard.listeners;
  }

  // The guards of the listeners that this thread opens, from the innermost one on.
  struct Nested {
    const std::shared_ptr<State>& guard;
    const Nested* outer;
  };
  static thread_local const Nested* guards_of_thread;

 private:
  using Guards = std::vector<std::shared_ptr<State>>;

  bool Admits(State* guard, int connection, const sockaddr_storage& peer) {
    {
      MutexLock lock(&mutex_);
      // A listener without its guard admits nobody, rather than everybody.
      if (guard->ended) return false;
      ++guard->running;
    }
    const bool admitted = guard->check(connection, peer);
    MutexLock lock(&mutex_);
    if (--guard->running == 0) ended_.NotifyAll();
    return admitted;
  }

  Mutex mutex_;
  CondVar ended_;
  std::map<int, Guards> guards_ ABSL_GUARDED_BY(mutex_);  // by descriptor
};

thread_local const GuardedListeners::Nested* GuardedListeners::guards_of_thread = nullptr;

ListenerGuard::ListenerGuard(Check check) : state_(new State{std::move(check)}) {
  // The program must have the accept that asks the guard.
  KeepAcceptReserve();
}

ListenerGuard::~ListenerGuard() { GuardedListeners::OfProcess().End(state_.get()); }

int ListenerGuard::Guard(const std::function<void()>& start) {
  const int before = GuardedListeners::OfProcess().Count(*state_);
  const GuardedListeners::Nested nested = {state_, GuardedListeners::guards_of_thread};
  GuardedListeners::guards_of_thread = &nested;
  start();
  GuardedListeners::guards_of_thread = nested.outer;
  return GuardedListeners::OfProcess().Count(*state_) - before;
}

void ListenerGuard::NoteListener(int socket) { GuardedListeners::OfProcess().Note(socket); }

bool ListenerGuard::Admits(int listener, int connection, const sockaddr_storage& peer) {
  return GuardedListeners::OfProcess().Admits(listener, connection, peer);
}

}  // namespace sluice
