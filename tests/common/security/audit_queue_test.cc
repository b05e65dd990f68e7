#include "common/security/audit_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/common/security/recorded_audit.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

TEST(AuditQueueTest, WhatWaitsIsWrittenAtTheEnd) {
  RecordedAudit audit("pserver");
  {
    AuditQueue queue(audit.log());
    for (int i = 0; i < 100; ++i)
      queue.Refused({"none", "", "10.0.0.1:5"}, kConnectMethod, RefusalReason::kRoom, "a cause");
  }
  EXPECT_EQ(audit.Refusals(kConnectMethod, "room"), 100u);
  EXPECT_THAT(audit.Text(), HasSubstr("\"address\": \"10.0.0.1:5\", \"detail\": \"a cause\""));
}

TEST(AuditQueueTest, RefusalsThatComeTooFastAreCounted) {
  RecordedAudit audit("pserver");
  constexpr uint64_t kSent = 20'000;
  {
    AuditQueue queue(audit.log());
    for (uint64_t i = 0; i < kSent; ++i)
      queue.Refused({"none", "", "10.0.0.1:5"}, kConnectMethod, RefusalReason::kRoom, "a cause");
  }
  EXPECT_EQ(audit.Refusals(kConnectMethod, "room"), kSent);
  audit.log()->Flush();
  EXPECT_THAT(audit.Text(), HasSubstr("\"event\": \"left_out\", \"refusals\": 0, \"strangers\": "));
}

TEST(AuditQueueTest, WithoutALogNothingIsRecorded) {
  AuditQueue queue(nullptr);
  queue.Refused({}, kConnectMethod, RefusalReason::kRoom, "");
}

}  // namespace
}  // namespace sluice
