// A failpoint in a daemon of the tests: it kills its own process before or after one change of
// files, or the disk is bad for a while.
//
// Four environment variables of the process say which:
//   FAILPOINT        before:N or after:N, N from 1, kills; N counts the changes whose path matches.
//                    fail: these changes fail with EIO. slow:MS: each takes MS milliseconds longer.
//                    exit: instead of a change the process exits with code 0
//   FAILPOINT_WHILE  fail and slow: a file; the disk is bad as long as it exists. exit: the process
//                    removes it, and exits only if it could
//   FAILPOINT_PATH   a shell's pattern for the whole path, in which * does not match '/'; default:
//                    every path
//   FAILPOINT_LOG    a file that gets a line "N WHAT PATH" before each change that matches
// The first may be absent; then the process lives and only the log is written. WHAT is as in
// hooked_env.h.
//
// Thread safety: SetFailpoint comes before other threads use the Env, whose hooks are safe then.
#pragma once

#include <fcntl.h>
#include <fnmatch.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tests/common/base/hooked_env.h"

namespace sluice {

// Ends the process with exit code 2 when a variable makes no sense.
inline void SetFailpoint(HookedEnv* env) {
  const auto variable = [](const char* name, const char* otherwise) {
    const char* const value = std::getenv(name);
    return std::string(value == nullptr ? otherwise : value);
  };
  const std::string failpoint = variable("FAILPOINT", "");
  const std::string pattern = variable("FAILPOINT_PATH", "");
  const std::string log = variable("FAILPOINT_LOG", "");
  const std::string bad_while = variable("FAILPOINT_WHILE", "");
  absl::string_view number = failpoint;
  const bool after = absl::ConsumePrefix(&number, "after:");
  const bool slow = absl::ConsumePrefix(&number, "slow:");
  const bool fails = failpoint == "fail", exits = failpoint == "exit";
  const bool kills = after || absl::ConsumePrefix(&number, "before:");
  uint64_t at = 0;
  if (!failpoint.empty() && !fails && !exits &&
      ((!kills && !slow) || !absl::SimpleAtoi(number, &at) || at == 0)) {
    std::cerr << "FAILPOINT must be before:N, after:N, fail, exit or slow:MS, not " << failpoint
              << std::endl;
    std::exit(2);
  }
  const auto matches = [pattern](const std::string& path) {
    return pattern.empty() || ::fnmatch(pattern.c_str(), path.c_str(), FNM_PATHNAME) == 0;
  };
  // A change runs between its hooks on one thread, so the thread knows the number of its change.
  static std::atomic<uint64_t> changes{0};  // relaxed: only different numbers matter
  static thread_local uint64_t current = 0;
  const auto kill_at = [at](uint64_t change) {
    if (change != at) return;
    ::kill(::getpid(), SIGKILL);
    for (;;) ::pause();
  };
  env->before = [=](const std::string& what, const std::string& path) {
    if (!matches(path)) return absl::OkStatus();
    current = changes.fetch_add(1, std::memory_order_relaxed) + 1;
    if (!log.empty()) {
      const std::string line = absl::StrCat(current, " ", what, " ", path, "\n");
      const int fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
      if (fd < 0 || ::write(fd, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
        std::cerr << "cannot write to " << log << std::endl;
        std::exit(2);
      }
      ::close(fd);
    }
    if (kills && !after) kill_at(current);
    if (exits && ::unlink(bad_while.c_str()) == 0) ::_exit(0);
    if ((fails || slow) && ::access(bad_while.c_str(), F_OK) == 0) {
      if (fails) return absl::ErrnoToStatus(EIO, absl::StrCat(what, " ", path));
      std::this_thread::sleep_for(std::chrono::milliseconds(at));
    }
    return absl::OkStatus();
  };
  if (!after) return;
  env->after = [=](const std::string&, const std::string& path) {
    if (matches(path)) kill_at(current);
  };
}

}  // namespace sluice
