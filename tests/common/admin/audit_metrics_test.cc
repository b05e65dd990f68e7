#include "common/admin/audit_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include "tests/common/base/fake_clock.h"
#include "tests/common/saved_model/memory_env.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class AuditMetricsTest : public testing::Test {
 protected:
  std::unique_ptr<AuditLog> Open(const std::string& role) {
    AuditLog::Options options;
    options.path = "audit";
    options.role = role;
    options.clock = &clock_;
    options.env = &env_;
    return *AuditLog::Open(std::move(options));
  }
  std::string Text(AuditMetrics* metrics) {
    metrics->Update();
    return prometheus::TextSerializer().Serialize(registry_.Collect());
  }

  FakeClock clock_;
  MemoryEnv env_;
  prometheus::Registry registry_;
};

TEST_F(AuditMetricsTest, CountersFollowTheLog) {
  const auto log = Open("scheduler");
  AuditMetrics metrics(log.get(), &registry_);
  EXPECT_THAT(Text(&metrics), HasSubstr("sluice_scheduler_actions_total{action=\"cancel\"} 0\n"));
  const AuditedCaller caller = CallerOf(PeerIdentity(), "a:1");
  for (int i = 0; i < 2; ++i) {
    log->Refused(caller, "/sluice.Scheduler/CancelJob", RefusalReason::kRole, "");
    log->Acted(caller, AuditedAction::kCancel, "job", absl::OkStatus());
    const std::string text = Text(&metrics);
    const std::string n = std::to_string(i + 1) + "\n";
    EXPECT_THAT(text, HasSubstr("sluice_scheduler_refusals_total{method=\"/sluice.Scheduler/"
                                "CancelJob\",reason=\"role\"} " +
                                n));
    EXPECT_THAT(text, HasSubstr("sluice_scheduler_actions_total{action=\"cancel\"} " + n));
    EXPECT_THAT(text, HasSubstr("sluice_scheduler_audit_lines_lost_total 0\n"));
  }
}

TEST_F(AuditMetricsTest, OnlyTheSchedulerTakesOrders) {
  const auto log = Open("worker");
  AuditMetrics metrics(log.get(), &registry_);
  const std::string text = Text(&metrics);
  EXPECT_THAT(text, HasSubstr("sluice_worker_audit_lines_lost_total 0\n"));
  EXPECT_THAT(text, Not(HasSubstr("actions")));
}

}  // namespace
}  // namespace sluice
