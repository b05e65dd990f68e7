#include "common/security/refusal_reason.h"

#include <gtest/gtest.h>

#include "common/base/status_macros.h"

namespace sluice {
namespace {

TEST(RefusalReasonTest, AStatusCarriesTheFirstMark) {
  const absl::Status refusal =
      Because(RefusalReason::kPath, absl::PermissionDeniedError("not there"));
  EXPECT_EQ(refusal.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(refusal.message(), "not there");
  EXPECT_EQ(ReasonOf(refusal), RefusalReason::kPath);
  EXPECT_EQ(ReasonOf(Because(RefusalReason::kPass, refusal)), RefusalReason::kPath);
}

TEST(RefusalReasonTest, StatusesWithoutAMarkHaveTheOtherReason) {
  EXPECT_EQ(ReasonOf(absl::PermissionDeniedError("why")), RefusalReason::kOther);
  EXPECT_EQ(ReasonOf(absl::OkStatus()), RefusalReason::kOther);
  EXPECT_TRUE(Because(RefusalReason::kPass, absl::OkStatus()).ok());
}

}  // namespace
}  // namespace sluice
