// A process of another user, for tests that run as root.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>

#include "gtest/gtest.h"

namespace sluice {

inline constexpr uid_t kNobody = 65534;

// Runs `work` in a process of this user, which may only call what is safe after a fork. The process
// is killed when the object ends, if it has not ended by itself.
class ProcessOfUser {
 public:
  ProcessOfUser(uid_t user, const std::function<void()>& work) : pid_(fork()) {
    if (pid_ == 0) {
      if (setgid(user) != 0 || setuid(user) != 0) _exit(1);
      work();
      _exit(0);
    }
  }
  ~ProcessOfUser() {
    if (pid_ < 0) return;
    kill(pid_, SIGKILL);
    Join();
  }
  ProcessOfUser(const ProcessOfUser&) = delete;
  ProcessOfUser& operator=(const ProcessOfUser&) = delete;

  void Join() {
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
  }

 private:
  pid_t pid_;
};

}  // namespace sluice
