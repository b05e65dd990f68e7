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

TEST(AuditQueueTest, RefusalsThatComeTooFastAreSummedUp) {
  RecordedAudit audit("pserver");
  constexpr uint64_t kMost = 1000000;
  uint64_t sent = 0;
  {
    AuditQueue queue(audit.log());
    // Until the queue has been full and a later line has said so.
    while (sent < kMost && audit.Text().find("too fast") == std::string::npos) {
      for (int i = 0; i < 2000; ++i, ++sent)
        queue.Refused({"none", "", "10.0.0.1:5"}, kConnectMethod, RefusalReason::kRoom, "a cause");
    }
  }
  EXPECT_THAT(audit.Text(), HasSubstr("others have come too fast"));
  EXPECT_LT(audit.Refusals(kConnectMethod, "room"), sent);
}

TEST(AuditQueueTest, WithoutALogNothingIsRecorded) {
  AuditQueue queue(nullptr);
  queue.Refused({}, kConnectMethod, RefusalReason::kRoom, "");
}

}  // namespace
}  // namespace sluice
