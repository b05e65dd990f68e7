#include "common/security/listener_guard.h"

#include <map>
#include <utility>

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

  // Each socket begins to listen here, so a descriptor that is used again has no old guard.
  void Note(int listener, const std::shared_ptr<State>& guard) {
    MutexLock lock(&mutex_);
    if (guard == nullptr) {
      guards_.erase(listener);
    } else {
      guards_[listener] = guard;
      ++guard->listeners;
    }
  }

  bool Admits(int listener, int connection, const sockaddr_storage& peer) {
    std::shared_ptr<State> guard;
    {
      MutexLock lock(&mutex_);
      const auto found = guards_.find(listener);
      if (found == guards_.end()) return true;
      guard = found->second;
      if (guard->ended) return false;
      ++guard->running;
    }
    const bool admitted = guard->check(connection, peer);
    MutexLock lock(&mutex_);
    if (--guard->running == 0) ended_.NotifyAll();
    return admitted;
  }

  void End(State* guard) {
    MutexLock lock(&mutex_);
    guard->ended = true;
    while (guard->running > 0) ended_.Wait(&mutex_);
  }

  int Count(const State& guard) {
    MutexLock lock(&mutex_);
    return guard.listeners;
  }

  // The guard of the listeners that this thread opens; null: they have none.
  static thread_local const std::shared_ptr<State>* guard_of_thread;

 private:
  Mutex mutex_;
  CondVar ended_;
  std::map<int, std::shared_ptr<State>> guards_ ABSL_GUARDED_BY(mutex_);  // by descriptor
};

thread_local const std::shared_ptr<ListenerGuard::State>* GuardedListeners::guard_of_thread =
    nullptr;

ListenerGuard::ListenerGuard(Check check) : state_(new State{std::move(check)}) {
  // The program must have the accept that asks the guard.
  KeepAcceptReserve();
}

ListenerGuard::~ListenerGuard() { GuardedListeners::OfProcess().End(state_.get()); }

int ListenerGuard::Guard(const std::function<void()>& start) {
  const int before = GuardedListeners::OfProcess().Count(*state_);
  GuardedListeners::guard_of_thread = &state_;
  start();
  GuardedListeners::guard_of_thread = nullptr;
  return GuardedListeners::OfProcess().Count(*state_) - before;
}

void ListenerGuard::NoteListener(int socket) {
  const auto* const guard = GuardedListeners::guard_of_thread;
  GuardedListeners::OfProcess().Note(socket, guard != nullptr ? *guard : nullptr);
}

bool ListenerGuard::Admits(int listener, int connection, const sockaddr_storage& peer) {
  return GuardedListeners::OfProcess().Admits(listener, connection, peer);
}

}  // namespace sluice
