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

TEST(RefusalReasonTest, OnlyRefusalsForWhichTheCallerIsToBlameHaveACause) {
  EXPECT_EQ(CauseOf(absl::InvalidArgumentError("x")), RefusalReason::kInvalid);
  EXPECT_EQ(CauseOf(absl::PermissionDeniedError("x")), RefusalReason::kOther);
  EXPECT_EQ(CauseOf(absl::UnimplementedError("x")), RefusalReason::kNoRule);
  for (const absl::StatusCode code :
       {absl::StatusCode::kOk, absl::StatusCode::kAborted, absl::StatusCode::kNotFound,
        absl::StatusCode::kFailedPrecondition, absl::StatusCode::kUnavailable,
        absl::StatusCode::kResourceExhausted, absl::StatusCode::kCancelled}) {
    EXPECT_EQ(CauseOf(absl::Status(code, "x")), std::nullopt) << code;
  }
  EXPECT_EQ(CauseOf(Because(RefusalReason::kFenced, absl::AbortedError("x"))),
            RefusalReason::kFenced);
  EXPECT_EQ(CauseOf(Because(RefusalReason::kJob, absl::NotFoundError("x"))), RefusalReason::kJob);
}

}  // namespace
}  // namespace sluice
