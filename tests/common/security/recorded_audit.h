// An audit log in memory, for tests of what writes to it.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "common/security/audit_log.h"
#include "gtest/gtest.h"
#include "tests/common/saved_model/memory_env.h"

namespace sluice {

class RecordedAudit {
 public:
  explicit RecordedAudit(const std::string& role) {
    AuditLog::Options options;
    options.path = "audit";
    options.role = role;
    options.clock = Clock::Real();
    options.env = &env_;
    options.burst = 10000;
    auto log = AuditLog::Open(std::move(options));
    EXPECT_TRUE(log.ok()) << log.status();
    log_ = *std::move(log);
  }

  AuditLog* log() { return log_.get(); }
  std::string Text() { return env_.Get("audit"); }
  // Waits until the log has `text`. A refusal is counted before its line is written, so a line that
  // another thread writes must be waited for.
  bool AwaitText(const std::string& text) {
    for (int i = 0; i < 6000 && Text().find(text) == std::string::npos; ++i)
      Clock::Real()->Sleep(absl::Milliseconds(10));
    return Text().find(text) != std::string::npos;
  }
  uint64_t Refusals(const std::string& method, const std::string& reason) {
    return log_->counts().refusals[{method, reason}];
  }
  // Waits for refusals that other threads record, and returns how many there are then.
  uint64_t AwaitRefusals(const std::string& method, const std::string& reason, uint64_t least) {
    for (int i = 0; i < 6000 && Refusals(method, reason) < least; ++i)
      Clock::Real()->Sleep(absl::Milliseconds(10));
    return Refusals(method, reason);
  }
  uint64_t Actions(const std::string& action) { return log_->counts().actions[action]; }

 private:
  MemoryEnv env_;
  std::unique_ptr<AuditLog> log_;
};

}  // namespace sluice
